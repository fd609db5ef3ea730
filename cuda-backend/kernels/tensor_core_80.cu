// Products of matrices and convolutions on tensor cores: operands of 16 bits, or of f32 rounded to TF32; sums in f32.
//
// A block of 4 warps computes a tile of the result. The operands come through STAGES stages of shared memory, STAGES - 1 of them ahead.
// While a warp multiplies, it loads its next fragments to registers. Sums are divided into parts if the tiles alone would not fill the GPU.
//
// Per byte of global memory, a tile of M x N has 2MN / (BYTES (M + N)) operations: 64 for 128 x 128 elements of 16 bits, 32 for 64 x 64. A
// block has 256 (M + N) bytes of shared memory. On sm_87 and sm_90, 2 blocks of 128 x 128 are resident (8 of 48 and of 64 warps), because
// of the registers, or 4 of 64 x 64 (16 warps).
#include "tensor_core.cuh"
#include "tensor_core_tiles.cuh"

#define STAGES 4

// The stages, and later the sums of the tile.
extern __shared__ __align__(128) char memory[];
__shared__ Window window;

// sums += a · b, for 16 lines of A and 8 of B.
#define MULTIPLY(SHAPE, NAME)                                                                                                              \
    __device__ static void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {                                  \
        asm("mma.sync.aligned." SHAPE ".row.col.f32." NAME "." NAME ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "                  \
                     "{%0, %1, %2, %3};"                                                                                                   \
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                                      \
    }

struct F16 : Binary16 {
    MULTIPLY("m16n8k16", "f16")
};

struct Tf32 : Binary32 {
    MULTIPLY("m16n8k8", "tf32")
};

// A warp's part of an operand: fragments of 16 lines, and 32 bytes of each. Both operands have the same fragments.
template <typename Type, unsigned LINES> struct Fragments {
    typedef Layout<Type::BYTES, LINES> Of;

    unsigned base; // Of the thread, in a stage.
    bool across;

    // `line` is the first line of the warp.
    __device__ Fragments(unsigned line, unsigned across) : across(across) {
        unsigned lane = threadIdx.x % 32;
        if (!across) {
            unsigned own = lane % 16;
            base = (line + own) * DEPTH + (lane / 16 ^ Of::swizzle(own, false)) * CHUNK;
        } else if (Type::BYTES == 2) {
            unsigned own = lane % 8 + lane / 16 * 8;
            base = own * Of::ROW + ((line / 8 + (lane >> 3 & 1)) ^ Of::swizzle(own, true)) * CHUNK;
        } else {
            unsigned own = lane % 4, group = lane / 4;
            base = own * Of::ROW + ((line / 4 + group / 4) ^ Of::swizzle(own, true)) * CHUNK + group % 4 * 4;
        }
    }

    // Loads fragment `i`, and bytes 32 `step` to 32 `step` + 31, from the stage at `stage`.
    __device__ void load(unsigned (&to)[4], unsigned stage, unsigned i, unsigned step) const {
        unsigned at = stage;
        if (Type::BYTES == 2) {
            at += across ? (base ^ i * 32) + step * (16 * Of::ROW) : (base ^ step * 32) + i * (16 * DEPTH);
            asm volatile("{\n\t.reg .pred across;\n\tsetp.ne.u32 across, %5, 0;\n\t"
                         "@!across ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n\t"
                         "@across ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n\t}"
                         : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                         : "r"(at), "r"((unsigned)across)
                         : "memory");
            return;
        }
        if (across) {
#pragma unroll
            for (unsigned part = 0; part < 4; part++) {
                unsigned own = at + (base ^ (i * 64 + part % 2 * 32)) + (step * 8 + part / 2 * 4) * Of::ROW;
                asm volatile("ld.shared.b32 %0, [%1];" : "=r"(to[part]) : "r"(own) : "memory");
            }
        } else {
            at += (base ^ step * 32) + i * (16 * DEPTH);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                         : "r"(at)
                         : "memory");
        }
#pragma unroll
        for (unsigned part = 0; part < 4; part++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(to[part]) : "f"(__uint_as_float(to[part])));
    }
};

// Computes a tile of M rows and N columns of a product. Each warp computes a part of it of OWN_M rows and OWN_N columns.
template <typename Type, unsigned M, unsigned N, unsigned OWN_M, unsigned OWN_N, bool ALIGNED>
__device__ inline void multiply(const char *a, const char *b, const void *bias, void *y, float *parts, const Problem &of) {
    const unsigned SIZE = (M + N) * DEPTH, STEP = DEPTH / Type::BYTES, DOWN = OWN_M / 16, ALONG = OWN_N / 16;
    unsigned stages = (unsigned)__cvta_generic_to_shared(memory), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned warp_row = warp / (N / OWN_N) * OWN_M, warp_column = warp % (N / OWN_N) * OWN_N;
    Tile tile(of);
    go_to(tile.product, of, Type::BYTES, a, b);
    if (threadIdx.x == 0) window = window_of(of, (unsigned)tile.product);
    __syncthreads();
    ImageOperand<Type::BYTES, M, ALIGNED> left(a, of, window, tile.row * M);
    PlainOperand<Type::BYTES, N, ALIGNED> right(b, of, tile.column * N);
    Fragments<Type, M> left_fragments(warp_row, of.a_across);
    Fragments<Type, N> right_fragments(warp_column, of.b_across);
    unsigned k = min(tile.part * of.part, window.total), end = min(k + of.part, window.total);
    unsigned count = (end - k + STEP - 1) / STEP;

    unsigned rows[2][DOWN][4], columns[2][ALONG][4];
    auto load = [&](unsigned stage, unsigned step) {
        unsigned from = stages + stage % STAGES * SIZE;
#pragma unroll
        for (unsigned i = 0; i < DOWN; i++) left_fragments.load(rows[step][i], from, i, step);
#pragma unroll
        for (unsigned j = 0; j < ALONG; j++) right_fragments.load(columns[step][j], from + M * DEPTH, j, step);
    };
    float sums[DOWN][2 * ALONG][4] = {};
    auto multiply_step = [&](unsigned step) {
#pragma unroll
        for (unsigned i = 0; i < DOWN; i++)
#pragma unroll
            for (unsigned j = 0; j < 2 * ALONG; j++)
                Type::multiply(sums[i][j], rows[step][i], columns[step][j / 2][j % 2], columns[step][j / 2][j % 2 + 2]);
    };
    // The stages before the first one only start copies.
#pragma unroll 1
    for (int stage = 1 - STAGES; stage < (int)count; stage++) {
        if (stage >= 0) load(stage, 1);
        unsigned ahead = (unsigned)(stage + STAGES - 1);
        if (ahead < count) {
            unsigned to = stages + ahead % STAGES * SIZE;
            left.bring(of, window, k + ahead * STEP, to);
            right.bring(of, window, k + ahead * STEP, to + M * DEPTH);
        }
        commit();
        if (stage >= 0) multiply_step(0);
        wait<STAGES - 2>();
        __syncthreads();
        if (stage >= -1 && stage + 1 < (int)count) load(stage + 1, 0);
        if (stage >= 0) multiply_step(1);
    }
    wait<0>();
    __syncthreads();

    // The sums go through shared memory, so that threads store whole chunks.
    float *staged = (float *)memory;
#pragma unroll
    for (unsigned i = 0; i < DOWN; i++)
#pragma unroll
        for (unsigned j = 0; j < 2 * ALONG; j++)
#pragma unroll
            for (unsigned half = 0; half < 2; half++) {
                unsigned row = warp_row + i * 16 + half * 8 + lane / 4, column = warp_column + j * 8 + lane % 4 * 2;
                *(float2 *)(staged + staged_at<N>(row, column)) = make_float2(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
            }
    __syncthreads();
    store_tile<Type, M, N>(of, tile, staged, bias, y, parts);
}

// y = the sum of `count` parts in ascending order, and the bias. A thread computes WIDTH neighbouring elements of a row.
template <typename Type, unsigned WIDTH>
__device__ inline void sum(const float *parts, const void *bias, void *y, unsigned n, unsigned count, Index elements,
                           unsigned bfloat) {
    for (Index at = first_element() * WIDTH; at < elements; at += all_threads() * WIDTH) {
        float own[WIDTH] = {};
        for (unsigned part = 0; part < count; part++) {
            float next[WIDTH];
            const float *from = parts + part * elements + at;
            if (WIDTH == 4) *(float4 *)next = *(const float4 *)from;
            else *next = *from;
#pragma unroll
            for (unsigned i = 0; i < WIDTH; i++) own[i] += next[i];
        }
        if (bias) {
            unsigned column = (unsigned)(at % n);
#pragma unroll
            for (unsigned i = 0; i < WIDTH; i++) own[i] += Type::load(bias, column + i, bfloat);
        }
        if (Type::BYTES == 4) {
            if (WIDTH == 4) *(float4 *)((float *)y + at) = *(const float4 *)own;
            else ((float *)y)[at] = *own;
        } else {
            unsigned pairs[2] = {Type::pair(own[0], own[1 % WIDTH]), Type::pair(own[2 % WIDTH], own[3 % WIDTH])};
            if (WIDTH == 4) *(uint2 *)((unsigned short *)y + at) = {pairs[0], pairs[1]};
            else ((unsigned short *)y)[at] = (unsigned short)pairs[0];
        }
    }
}

#define SUM(NAME, TYPE, WIDTH)                                                                                                             \
    extern "C" __global__ void sum_##NAME(unsigned *fault, unsigned step, const float *parts, const void *bias, void *y, unsigned n,       \
                                          unsigned count, Index elements, unsigned bfloat) {                                               \
        GUARD;                                                                                                                             \
        sum<TYPE, WIDTH>(parts, bias, y, n, count, elements, bfloat);                                                                      \
    }
// A thread may have up to BLOCKS blocks' share of the registers.
#define KERNEL(NAME, TYPE, M, N, OWN_M, OWN_N, ALIGNED, BLOCKS)                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) product_##NAME(                                                          \
        unsigned *fault, unsigned step, const char *a, const char *b, const void *bias, void *y, float *parts,                             \
        const __grid_constant__ Problem of) {                                                                                              \
        GUARD;                                                                                                                             \
        multiply<TYPE, M, N, OWN_M, OWN_N, ALIGNED>(a, b, bias, y, parts, of);                                                             \
    }
#define KERNELS(NAME, TYPE)                                                                                                                \
    KERNEL(NAME##_128x128, TYPE, 128, 128, 64, 64, true, 2)                                                                                \
    KERNEL(NAME##_64x64, TYPE, 64, 64, 32, 32, true, 4)                                                                                    \
    SUM(NAME##_4, TYPE, 4)                                                                                                                 \
    SUM(NAME, TYPE, 1)

KERNELS(f16, F16)
KERNELS(f32, Tf32)
KERNEL(f16_unaligned, F16, 64, 64, 32, 32, false, 4)
