// Depthwise convolutions with 3 x 3 taps that are not dilated, four channels at a time. A thread computes PIXELS neighbours of a row. It
// loads the images' pixels under the windows once for each row of taps: 1.5 for each pixel of the result with stride 1, 2.25 with stride 2.
//
// A convolution has 18 FLOP for each 8 bytes of images and result, so the memory limits it. With at most 80 registers, an SM of sm_87 or of
// sm_90 holds at least 24 warps.
#include "quad.cuh"
#include "window.cuh"

#define PIXELS 4
#define TAPS 3
#define BLOCK 256

// The geometry, with numbers of quads of channels.
struct Depthwise {
    Axis down, across;
    unsigned quads;
    unsigned groups; // Groups of PIXELS pixels in a row of the result.
    unsigned turned; // 1 if the taps stand in reverse order, as for the gradient of the images.
};

__device__ inline float4 fused(float4 a, float4 b, float4 sum) {
    return make_float4(fmaf(a.x, b.x, sum.x), fmaf(a.y, b.y, sum.y), fmaf(a.z, b.z, sum.z), fmaf(a.w, b.w, sum.w));
}

// y = depthwise_conv2d(x, filter) + bias. Without a bias, its address is 0.
template <unsigned STRIDE>
__device__ inline void convolve(const float4 *__restrict__ x, const float4 *__restrict__ filter, const float4 *__restrict__ bias,
                                float4 *__restrict__ y, const Depthwise &conv, Index threads) {
    const Axis &down = conv.down, &across = conv.across;
    const unsigned WIDTH = (PIXELS - 1) * STRIDE + TAPS;
    for (Index thread = first_element(); thread < threads; thread += all_threads()) {
        Index image = thread;
        unsigned quad = split(image, conv.quads), ow = split(image, conv.groups) * PIXELS, oh = split(image, down.output);
        float4 sums[PIXELS] = {};
        unsigned iw = ow * STRIDE - across.before;
#pragma unroll 1
        for (unsigned kh = 0; kh < TAPS; kh++) {
            unsigned ih = oh * STRIDE + kh - down.before;
            if (ih >= down.input) continue;
            float4 weights[TAPS];
#pragma unroll
            for (unsigned kw = 0; kw < TAPS; kw++) {
                unsigned tap = kh * TAPS + kw;
                weights[kw] = filter[(conv.turned ? TAPS * TAPS - 1 - tap : tap) * conv.quads + quad];
            }
            const float4 *row = x + (image * down.input + ih) * across.input * conv.quads + quad;
#pragma unroll
            for (unsigned i = 0; i < WIDTH; i++) {
                float4 pixel = {};
                if (iw + i < across.input) pixel = row[(Index)(iw + i) * conv.quads];
#pragma unroll
                for (unsigned kw = 0; kw < TAPS; kw++) {
                    if (kw <= i && (i - kw) % STRIDE == 0 && (i - kw) / STRIDE < PIXELS) {
                        sums[(i - kw) / STRIDE] = fused(pixel, weights[kw], sums[(i - kw) / STRIDE]);
                    }
                }
            }
        }
        float4 *to = y + ((image * down.output + oh) * across.output + ow) * conv.quads + quad;
#pragma unroll
        for (unsigned i = 0; i < PIXELS; i++) {
            if (ow + i < across.output) to[(Index)i * conv.quads] = bias ? sums[i] + bias[quad] : sums[i];
        }
    }
}

// The gradient of the filter. A block takes `wide` quads of channels. Its threads, and the blocks of a column of the grid, take turns at
// the rows of dy. The block stores the sums of its rows in part blockIdx.y of `parts`.
__device__ inline void filter_grad(const float4 *__restrict__ x, const float4 *__restrict__ dy, float4 *__restrict__ parts,
                                   const Depthwise &conv, unsigned wide, Index rows) {
    __shared__ float4 shared[BLOCK];
    const Axis &down = conv.down, &across = conv.across;
    unsigned quad = blockIdx.x * wide + threadIdx.x % wide, turn = threadIdx.x / wide, turns = BLOCK / wide;
    float4 sums[TAPS][TAPS] = {};
    Index first = (Index)blockIdx.y * turns + turn, step = (Index)gridDim.y * turns;
#pragma unroll 1
    for (Index number = first; number < rows && quad < conv.quads; number += step) {
        const float4 *right = dy + number * across.output * conv.quads + quad;
        Index image = number;
        unsigned ih = split(image, down.output) * down.stride - down.before, iw = 0 - across.before;
        const float4 *left = x + image * down.input * across.input * conv.quads + quad;
#pragma unroll 1
        for (unsigned ow = 0; ow < across.output; ow++) {
            float4 gradient = *right;
#pragma unroll
            for (unsigned kh = 0; kh < TAPS; kh++)
#pragma unroll
                for (unsigned kw = 0; kw < TAPS; kw++) {
                    float4 pixel = {};
                    if (ih + kh < down.input && iw + kw < across.input) {
                        pixel = left[((Index)(ih + kh) * across.input + (iw + kw)) * conv.quads];
                    }
                    sums[kh][kw] = fused(pixel, gradient, sums[kh][kw]);
                }
            right += conv.quads;
            iw += across.stride;
        }
    }
#pragma unroll
    for (unsigned tap = 0; tap < TAPS * TAPS; tap++) {
        shared[threadIdx.x] = sums[tap / TAPS][tap % TAPS];
        __syncthreads();
        if (turn == 0 && quad < conv.quads) {
            float4 sum = shared[threadIdx.x];
#pragma unroll 1
            for (unsigned i = 1; i < turns; i++) sum += shared[threadIdx.x + i * wide];
            parts[((Index)blockIdx.y * TAPS * TAPS + tap) * conv.quads + quad] = sum;
        }
        __syncthreads();
    }
}

#define CONVOLVE(STRIDE)                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                                    \
    depthwise_3x3_stride_##STRIDE##_f32(unsigned *fault, unsigned step, const float4 *x, const float4 *filter, const float4 *bias,         \
                                        float4 *y, Depthwise conv, Index threads) {                                                        \
        GUARD;                                                                                                                             \
        convolve<STRIDE>(x, filter, bias, y, conv, threads);                                                                               \
    }

CONVOLVE(1)
CONVOLVE(2)

extern "C" __global__ void __launch_bounds__(BLOCK)
depthwise_3x3_filter_grad_f32(unsigned *fault, unsigned step, const float4 *x, const float4 *dy, float4 *parts, Depthwise conv,
                              unsigned wide, Index rows) {
    GUARD;
    filter_grad(x, dy, parts, conv, wide, rows);
}
