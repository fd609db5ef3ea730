// Products of f32 matrices by tiles whose operands come in the background, through the stages of shared memory: for GPUs from sm_80 on.
#pragma once
#include "async.cuh"
#include "tiles.cuh"

// Lines of a matrix, of which a part of DEPTH elements comes at a time. They are contiguous, or have their elements in contiguous rows. In
// shared memory, the elements of neighbouring lines are neighbours.
template <unsigned LINES, unsigned DEPTH, unsigned THREADS> struct Copies {
    enum : unsigned {
        PITCH = LINES + QUAD,
        // Threads of a contiguous line. A warp then writes to different banks.
        ALONG = 8,
        // Lines and elements between the copies of a thread: of contiguous lines, of single elements of rows, and of quads of rows.
        LINE_STEP = THREADS / ALONG,
        ROW_STEP = THREADS / LINES,
        QUAD_STEP = THREADS / (LINES / QUAD),
    };
    static_assert(DEPTH % ALONG == 0 && THREADS % LINES == 0, "all threads take part");

    bool along, in_quads;
    unsigned pitch;    // Distance between contiguous lines, or between rows.
    int lines, left;   // Numbers of lines of the tile, and of elements of a line in this part and the next ones.
    const float *next; // The thread's first element of the next part.
    unsigned to;       // Its place in a stage, in bytes.

    // The lines from `first` on, and their elements from `from` to before `end`. The matrix has `all` lines of `k` elements.
    __device__ inline Copies(const float *matrix, unsigned all, unsigned k, bool along, unsigned first, unsigned from, unsigned end)
        : along(along), in_quads(!along && all % QUAD == 0), pitch(along ? k : all), lines((int)at_most(all - first, LINES)),
          left((int)(end - from)) {
        next = matrix + (along ? (Index)(first + line()) * k + from + p() : (Index)(from + p()) * all + first + line());
        to = (p() * PITCH + line()) * 4;
    }

    // The thread's first line and its first element.
    __device__ inline unsigned line() const {
        return along ? threadIdx.x / ALONG : in_quads ? threadIdx.x % (LINES / QUAD) * QUAD : threadIdx.x % LINES;
    }
    __device__ inline unsigned p() const {
        return along ? threadIdx.x % ALONG : in_quads ? threadIdx.x / (LINES / QUAD) : threadIdx.x / LINES;
    }

    // Brings the next part to the stage at `stage`.
    __device__ inline void bring(unsigned stage) {
        if (lines == (int)LINES && left >= (int)DEPTH)
            bring_to<true>(stage + to);
        else
            bring_to<false>(stage + to);
        next += along ? DEPTH : (Index)pitch * DEPTH;
        left -= DEPTH;
    }

    __device__ inline const float *at(unsigned distance) const { return next + (Index)pitch * distance; }

    // If not ALL of it exists, what is outside is 0.
    template <bool ALL> __device__ inline void bring_to(unsigned to) const {
        int own_lines = lines - (int)line(), own_left = left - (int)p();
        if (along) {
#pragma unroll
            for (unsigned i = 0; i < LINES / LINE_STEP; i++)
#pragma unroll
                for (unsigned p = 0; p < DEPTH; p += ALONG)
                    copy_word(to + (p * PITCH + i * LINE_STEP) * 4, at(i * LINE_STEP) + p,
                              ALL || (own_lines > (int)(i * LINE_STEP) && own_left > (int)p) ? 4 : 0);
        } else if (in_quads) {
#pragma unroll
            for (unsigned i = 0; i < DEPTH / QUAD_STEP; i++)
                copy(to + i * QUAD_STEP * PITCH * 4, at(i * QUAD_STEP),
                     ALL || (own_lines > 0 && own_left > (int)(i * QUAD_STEP)) ? 16 : 0);
        } else {
#pragma unroll
            for (unsigned i = 0; i < DEPTH / ROW_STEP; i++)
                copy_word(to + i * ROW_STEP * PITCH * 4, at(i * ROW_STEP),
                          ALL || (own_lines > 0 && own_left > (int)(i * ROW_STEP)) ? 4 : 0);
        }
    }
};

// Multiplies the lines of `a` and of `b`, which have `depth` elements. While it multiplies one part, the next ones are on their way.
template <typename T, unsigned LINES, unsigned COLUMNS, unsigned DEPTH, unsigned THREADS>
__device__ inline void multiply(float *memory, Copies<LINES, DEPTH, THREADS> &a, Copies<COLUMNS, DEPTH, THREADS> &b, unsigned depth,
                                Sums<T> &sums) {
    unsigned parts = depth / DEPTH + (depth % DEPTH != 0), stages = (unsigned)__cvta_generic_to_shared(memory);
    auto bring = [&](unsigned part) {
        if (part < parts) {
            unsigned stage = stages + part % T::STAGES * (T::STAGE * 4);
            a.bring(stage);
            b.bring(stage + DEPTH * T::A_PITCH * 4);
        }
        commit();
    };
#pragma unroll 1
    for (unsigned part = 0; part < T::STAGES - 1; part++) bring(part);
#pragma unroll 1
    for (unsigned part = 0; part < parts; part++) {
        wait<T::STAGES - 2>();
        __syncthreads();
        bring(part + T::STAGES - 1);
        const float *stage = memory + part % T::STAGES * T::STAGE;
        sums.add(stage, stage + DEPTH * T::A_PITCH);
    }
    wait<0>();
    __syncthreads();
}
