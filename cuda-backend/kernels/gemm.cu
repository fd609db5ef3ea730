// Products of f32 matrices without tensor cores, and the steps of optimizers that are fused with them. See tiles.cuh.
#include "gemm.cuh"

// Adds `count` parts of products of `elements` elements in `columns` columns, in the order of the parts.
template <typename Q, typename End>
__device__ inline void sum(const float *parts, unsigned count, Index elements, unsigned columns, const End &end) {
    const unsigned WIDTH = sizeof(Q) / sizeof(float);
#pragma unroll 1
    for (Index at = first_element() * WIDTH; at < elements; at += all_threads() * WIDTH) {
        const float *from = parts + at;
        auto sums = load(from, 0, Q());
#pragma unroll 4
        for (unsigned part = 1; part < count; part++) {
            from += elements;
            auto next = load(from, 0, Q());
#pragma unroll
            for (unsigned i = 0; i < WIDTH; i++) sums.of[i] += next.of[i];
        }
        Index row = at;
        end.store(at, split(row, columns), *(const Q *)sums.of);
    }
}

#define GEMM(NAME, TILE, BLOCKS, STEPS, CLOSES)                                                                                            \
    extern "C" __global__ void __launch_bounds__(TILE::THREADS, BLOCKS)                                                                    \
    NAME(unsigned *fault, unsigned step, const float *a, const float *b, const __grid_constant__ Shapes of, unsigned products,             \
         unsigned each, END_PARAMETERS) {                                                                                                  \
        GUARD;                                                                                                                             \
        __shared__ __align__(16) float memory[TILE::SHARED];                                                                               \
        gemm<TILE, Matrix, STEPS, CLOSES>(memory, a, b, of, products, each, END_ARGUMENTS);                                                \
    }
#define SUM(NAME, Q, STEPS, CLOSES)                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                                                      \
    NAME(unsigned *fault, unsigned step, const float *parts, unsigned count, Index elements, unsigned columns, END_PARAMETERS) {           \
        GUARD;                                                                                                                             \
        sum<Q>(parts, count, elements, columns, end_of<STEPS, CLOSES>(columns, 0, END_ARGUMENTS));                                         \
    }

typedef Tile<128, 128, 8, 4, 2> Large;
typedef Tile<64, 64, 16, 2, 2> Small;
typedef Tile<128, 32, 8, 4, 1> Narrow;
typedef Tile<32, 128, 8, 1, 4> Flat;

GEMM(gemm_128x128_f32, Large, 2, false, false)
GEMM(gemm_64x64_f32, Small, 4, true, false)
GEMM(gemm_128x32_f32, Narrow, 4, false, false)
GEMM(gemm_32x128_f32, Flat, 4, false, false)
SUM(gemm_sum_f32, float, true, false)
SUM(gemm_sum_f32_4, float4, true, false)

GEMM(gemm_128x128_f32_closing, Large, 2, false, true)
GEMM(gemm_64x64_f32_closing, Small, 4, false, true)
GEMM(gemm_128x32_f32_closing, Narrow, 4, false, true)
GEMM(gemm_32x128_f32_closing, Flat, 4, false, true)
SUM(gemm_sum_f32_closing, float, false, true)
SUM(gemm_sum_f32_4_closing, float4, false, true)
