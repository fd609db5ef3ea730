// Products of large f32 matrices without tensor cores, for GPUs from sm_80 on. See copies.cuh.
#include "copies.cuh"
#include "gemm.cuh"

extern __shared__ __align__(16) float memory[];

#define GEMM(NAME, TILE, BLOCKS, CLOSES)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(TILE::THREADS, BLOCKS)                                                                    \
    NAME(unsigned *fault, unsigned step, const float *a, const float *b, const __grid_constant__ Shapes of, unsigned products,             \
         unsigned each, END_PARAMETERS) {                                                                                                  \
        GUARD;                                                                                                                             \
        gemm<TILE, Copies, false, CLOSES>(memory, a, b, of, products, each, END_ARGUMENTS);                                                \
    }

typedef Tile<128, 128, 16, 4, 2, 3> Square;
typedef Tile<128, 256, 16, 4, 2, 3> Wide;

GEMM(gemm_async_128x128_f32, Square, 2, false)
GEMM(gemm_async_128x256_f32, Wide, 1, false)
GEMM(gemm_async_128x128_f32_closing, Square, 2, true)
GEMM(gemm_async_128x256_f32_closing, Wide, 1, true)
