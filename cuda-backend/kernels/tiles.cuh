// Products of f32 matrices by tiles, without tensor cores: the main loop, and the store of a tile.
//
// A block computes a tile of y. It brings parts of the rows of a and of the columns of b to shared memory. While the threads multiply one
// part, the loads of the next one are under way.
#pragma once
#include "numbers.cuh"

// Number of neighbouring elements that are moved at a time: 16 bytes.
#define QUAD 4

__device__ inline unsigned at_most(unsigned value, unsigned limit) { return value < limit ? value : limit; }

// A tile of ROWS x COLUMNS elements, in parts of DEPTH elements of the sums, which go through STAGES stages of shared memory. Its warps
// form a grid of DOWN x ALONG. A warp has 4 x 8 lanes, and each lane 2 x QUADS squares of 4 x 4 elements. The squares of a lane are 16 rows
// and 32 columns apart.
//
// For each element of the sums, a lane loads (2 + QUADS) * 16 bytes from shared memory for 32 * QUADS fused operations. From global memory,
// a block loads 4 * (ROWS + COLUMNS) bytes for ROWS * COLUMNS of them: 16 operations per byte (32 FLOP) for 128 x 128.
template <unsigned OWN_ROWS, unsigned OWN_COLUMNS, unsigned OWN_DEPTH, unsigned OWN_DOWN, unsigned OWN_ALONG, unsigned OWN_STAGES = 2>
struct Tile {
    enum : unsigned {
        ROWS = OWN_ROWS,
        COLUMNS = OWN_COLUMNS,
        DEPTH = OWN_DEPTH,
        DOWN = OWN_DOWN,
        ALONG = OWN_ALONG,
        THREADS = 32 * DOWN * ALONG,
        QUADS = COLUMNS / ALONG / 32,
        // Rows of a strip: those that the threads hold at one index.
        STRIP = 4 * DOWN,
        STRIP_PITCH = COLUMNS + 8,
        // Lines in shared memory are longer by a quad. Threads that store elements of different lines then use different banks.
        A_PITCH = ROWS + QUAD,
        B_PITCH = COLUMNS + QUAD,
        STAGE = DEPTH * (A_PITCH + B_PITCH),
        STAGES = OWN_STAGES,
        SHARED = STAGES * STAGE > STRIP * STRIP_PITCH ? STAGES * STAGE : STRIP * STRIP_PITCH,
    };
    static_assert(ROWS == 32 * DOWN, "a warp has 32 rows");
};

// Where the threads of a block bring elements of an operand: quads of LINES lines x DEPTH elements. If the operand is stored `along` its
// lines, a quad has neighbours of one line, otherwise the same element of neighbouring lines. The quads of a thread are a step apart.
template <unsigned LINES, unsigned DEPTH, unsigned THREADS> struct Places {
    // Number of quads of a thread. If there are fewer quads than threads, the last threads have none.
    enum : unsigned { ALL = LINES * DEPTH / QUAD, EACH = ALL < THREADS ? 1 : ALL / THREADS, PITCH = LINES + QUAD };
    enum : unsigned { HALF = THREADS / 2, FEW = THREADS / (LINES / QUAD) };
    static_assert(DEPTH % 8 == 0 && EACH <= 2 && (DEPTH == 8 || HALF >= LINES), "a step has one direction");

    bool along;

    // Place of the thread's first quad, and the step to the second one.
    __device__ inline unsigned line() const { return along ? threadIdx.x / 2 % LINES : threadIdx.x % (LINES / QUAD) * QUAD; }
    __device__ inline unsigned p() const {
        return along ? threadIdx.x / 2 / LINES * 8 + threadIdx.x % 2 * QUAD : threadIdx.x / (LINES / QUAD);
    }
    __device__ inline unsigned line_step() const { return along ? HALF % LINES : 0; }
    __device__ inline unsigned p_step() const { return along ? HALF / LINES * 8 : FEW; }
    __device__ inline bool is_active() const { return ALL >= THREADS || threadIdx.x < ALL; }

    // Stores quads in a tile in which the elements of neighbouring lines are neighbours.
    __device__ inline void put(float *tile, const float4 (&quads)[EACH]) const {
        if (!is_active()) return;
        float *to = tile + p() * PITCH + line();
        if (along) {
#pragma unroll
            for (unsigned i = 0; i < EACH; i++) {
                float *own = to + i * (HALF / LINES * 8 * PITCH + HALF % LINES);
                own[0] = quads[i].x;
                own[PITCH] = quads[i].y;
                own[2 * PITCH] = quads[i].z;
                own[3 * PITCH] = quads[i].w;
            }
        } else {
#pragma unroll
            for (unsigned i = 0; i < EACH; i++) *(float4 *)(to + i * FEW * PITCH) = quads[i];
        }
    }
};

// Returns the quad at `from`, of which the first `inside` elements exist. The others are 0. If `whole`, the address is a multiple of 16,
// and all or none exist.
__device__ inline float4 quad_at(const float *from, int inside, bool whole) {
    float4 quad = make_float4(0, 0, 0, 0);
    if (whole) {
        asm("{\n\t.reg .pred p;\n\tsetp.gt.s32 p, %5, 0;\n\t@p ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];\n\t}"
            : "+f"(quad.x), "+f"(quad.y), "+f"(quad.z), "+f"(quad.w)
            : "l"(from), "r"(inside));
    } else {
        asm("{\n\t.reg .pred p<4>;\n\tsetp.gt.s32 p0, %5, 0;\n\tsetp.gt.s32 p1, %5, 1;\n\tsetp.gt.s32 p2, %5, 2;\n\t"
            "setp.gt.s32 p3, %5, 3;\n\t@p0 ld.global.nc.f32 %0, [%4];\n\t@p1 ld.global.nc.f32 %1, [%4+4];\n\t"
            "@p2 ld.global.nc.f32 %2, [%4+8];\n\t@p3 ld.global.nc.f32 %3, [%4+12];\n\t}"
            : "+f"(quad.x), "+f"(quad.y), "+f"(quad.z), "+f"(quad.w)
            : "l"(from), "r"(inside));
    }
    return quad;
}

// A matrix whose lines are contiguous, or have their elements in contiguous rows.
template <unsigned LINES, unsigned DEPTH, unsigned THREADS> struct Matrix {
    typedef Places<LINES, DEPTH, THREADS> Own;

    Own places;
    bool whole;
    const float *next;     // The thread's first quad of the next part.
    Index quad_step, step; // Distances to its second quad, and to the next part.
    int lines, left;       // Numbers of lines, and of elements of a line, from the first quad on.

    // The lines from `first` on, and their elements from `from` to before `end`. The matrix has `all` lines of `k` elements.
    __device__ inline Matrix(const float *matrix, unsigned all, unsigned k, bool along, unsigned first, unsigned from, unsigned end)
        : places{along}, whole((along ? k : all) % QUAD == 0) {
        Index pitch = along ? k : all;
        unsigned line = places.line(), p = places.p();
        // A tile needs no more than this of a matrix with more lines, or of longer ones.
        lines = places.is_active() ? (int)at_most(all - first, 1 << 30) - (int)line : 0;
        left = (int)(end - from) - (int)p;
        next = matrix + (along ? (first + line) * pitch + from + p : (from + p) * pitch + first + line);
        quad_step = along ? places.line_step() * pitch + places.p_step() : places.p_step() * pitch;
        step = along ? DEPTH : DEPTH * pitch;
    }

    // Brings the quads of a part. What is outside is 0.
    __device__ inline void fetch(float4 (&quads)[Own::EACH]) {
#pragma unroll
        for (unsigned i = 0; i < Own::EACH; i++) {
            int own_lines = lines - (int)(i * places.line_step()), own_left = left - (int)(i * places.p_step());
            bool exists = own_lines > 0 && own_left > 0;
            quads[i] = quad_at(next + i * quad_step, exists ? places.along ? own_left : own_lines : 0, whole);
        }
    }

    __device__ inline void advance() {
        next += step;
        left -= DEPTH;
    }
};

// Loads a quad from shared memory, by an instruction of its own: the compiler divides such loads differently each time that it runs.
__device__ inline float4 shared_quad(unsigned from) {
    float4 quad;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(quad.x), "=f"(quad.y), "=f"(quad.z), "=f"(quad.w)
                 : "r"(from)
                 : "memory");
    return quad;
}

// The sums of a thread. Lanes are numbered so that neighbours in pairs load the same address: then 16-byte loads of a half-warp need the
// banks once.
template <typename T> struct Sums {
    enum : unsigned { HEIGHT = 8, WIDTH = 4 * T::QUADS };
    unsigned row, column; // Of the first element.
    float of[HEIGHT][WIDTH] = {};

    __device__ inline Sums() {
        unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        row = warp / T::ALONG * 32 + lane / 2 % 4 * 4;
        column = warp % T::ALONG * (32 * T::QUADS) + (lane % 2 + lane / 8 * 2) * 4;
    }

    // Adds the products of a part.
    __device__ inline void add(const float *a_tile, const float *b_tile) {
        unsigned a = (unsigned)__cvta_generic_to_shared(a_tile + row), b = (unsigned)__cvta_generic_to_shared(b_tile + column);
#pragma unroll (WIDTH > 4 ? T::DEPTH : T::DEPTH / 2)
        for (unsigned p = 0; p < T::DEPTH; p++) {
            float4 rows[2], columns[T::QUADS];
#pragma unroll
            for (unsigned i = 0; i < 2; i++) rows[i] = shared_quad(a + (p * T::A_PITCH + 16 * i) * 4);
#pragma unroll
            for (unsigned j = 0; j < T::QUADS; j++) columns[j] = shared_quad(b + (p * T::B_PITCH + 32 * j) * 4);
            const float(&x)[HEIGHT] = (const float(&)[HEIGHT])rows;
            const float(&y)[WIDTH] = (const float(&)[WIDTH])columns;
#pragma unroll
            for (unsigned at = 0; at < HEIGHT * WIDTH; at++) {
                // Of many columns, down and up the columns in turn: each operation then shares an operand with the one before.
                unsigned down = at / HEIGHT % 2 ? HEIGHT - 1 - at % HEIGHT : at % HEIGHT;
                unsigned i = WIDTH > 8 ? down : at / WIDTH, j = WIDTH > 8 ? at / HEIGHT : at % WIDTH;
                of[i][j] = fmaf(x[i], y[j], of[i][j]);
            }
        }
    }

    // Stores the thread's elements of strip number `index`.
    __device__ inline void put(float *strip, unsigned index) const {
        float *to = strip + (row / 32 * 4 + row % 16 / 4) * T::STRIP_PITCH + column;
#pragma unroll
        for (unsigned i = 0; i < HEIGHT; i++)
#pragma unroll
            for (unsigned j = 0; j < T::QUADS; j++) {
                const float *own = of[i] + 4 * j;
                if (i == index) *(float4 *)(to + 32 * j) = make_float4(own[0], own[1], own[2], own[3]);
            }
    }
};

// Multiplies the lines of `a` and of `b`, which have `depth` elements. While it multiplies one part, the loads of the next are under way.
template <typename T, typename A, typename B>
__device__ inline void multiply(float *memory, A &a, B &b, unsigned depth, Sums<T> &sums) {
    unsigned parts = depth / T::DEPTH + (depth % T::DEPTH != 0);
    float *now = memory, *next = memory + T::STAGE;
#pragma unroll 1
    for (unsigned part = 0; part <= parts; part++) {
        float4 a_quads[A::Own::EACH], b_quads[B::Own::EACH];
        if (part < parts) {
            a.fetch(a_quads);
            b.fetch(b_quads);
            a.advance();
            b.advance();
        }
        if (part > 0) sums.add(now, now + T::DEPTH * T::A_PITCH);
        if (part < parts) {
            a.places.put(next, a_quads);
            b.places.put(next + T::DEPTH * T::A_PITCH, b_quads);
        }
        __syncthreads();
        float *before = now;
        now = next;
        next = before;
    }
}

// Position of tile number `tile` of a product of `down` x `along` tiles. Tiles that are computed at the same time form a square, so that
// they share their operands in the L2 cache.
struct Position {
    unsigned row, column;
};

__device__ inline Position position_of(unsigned tile, unsigned down, unsigned along) {
    const unsigned HEIGHT = 8;
    unsigned group = tile / (HEIGHT * along), rest = tile % (HEIGHT * along), height = at_most(HEIGHT, down - group * HEIGHT);
    return {group * HEIGHT + rest % height, rest / height};
}

// The end of a product in whose place the host computes elements of other tensors and stores them (`ptx/opening.rs`).
__device__ inline void close(Index at, float sum) { asm volatile("// closing %0 %1" ::"f"(sum), "l"(at) : "memory"); }
__device__ inline void close(Index at, float4 sums) {
    asm volatile("// closing %0 %1 %2 %3 %4" ::"f"(sums.x), "f"(sums.y), "f"(sums.z), "f"(sums.w), "l"(at) : "memory");
}

// Calls `end` with the elements of a tile, whose first one is in row `first_row` and column `first_column` of y[m,n]. The threads of a
// block exchange the elements through shared memory, so that neighbouring threads get neighbouring elements of a row: quads if `whole`.
// `end.row(row)` is the position of a row's first element.
template <typename T, typename End>
__device__ inline void finish(float *strip, const Sums<T> &sums, unsigned first_row, unsigned first_column, unsigned m, unsigned n,
                              const End &end) {
    bool whole = n % QUAD == 0;
    unsigned width = whole ? QUAD : 1;
#pragma unroll 1
    for (unsigned index = 0; index < 8; index++) {
        sums.put(strip, index);
        __syncthreads();
#pragma unroll 1
        for (unsigned i = threadIdx.x * width; i < T::STRIP * T::COLUMNS; i += T::THREADS * width) {
            unsigned line = i / T::COLUMNS, own_column = i % T::COLUMNS, column = first_column + own_column;
            unsigned row = first_row + line / 4 * 32 + index / 4 * 16 + line % 4 * 4 + index % 4;
            if (row >= m || column >= n) continue;
            const float *from = strip + line * T::STRIP_PITCH + own_column;
            Index at = end.row(row) + column;
            if (whole) {
                end.store(at, column, *(const float4 *)from);
            } else {
                end.store(at, column, *from);
            }
        }
        __syncthreads();
    }
}
