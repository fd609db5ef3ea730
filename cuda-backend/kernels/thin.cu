// Products of f32 matrices of which one has at most 4 rows or columns, such as a dense layer for one example. They read each element of the
// long operand once, for at most 4 fused operations: at most 2 FLOP per byte, so the memory limits them. A thread has up to 64 bytes of the
// long operand under way. All kernels need at most 64 registers, so an SM of sm_87 or sm_90 holds at least 32 warps.
#include "shapes.cuh"

#define BLOCK 256
#define WARPS (BLOCK / 32)

// A product as these kernels see it: the long operand has `lines`, of which each result takes one, and the short one has `rows`.
struct Thin {
    const float *longer, *shorter;
    float *y;
    const float *bias;
    unsigned lines, rows, k;
    Index row_step, p_step;     // Distances in the short operand of the next row, and of the next element of a row.
    Index y_line, y_row;        // Distances in y of the next line, and of the next row.
    bool biased_by_line;        // True if a line has a bias, and false if a row has one.

    // The long operand is b, or a if `swapped`.
    __device__ inline Thin(const float *a, const float *b, const float *own_bias, float *own_y, const Shapes &of, Index product,
                           Index start, bool swapped)
        : bias(own_bias), k(of.k), biased_by_line(!swapped) {
        go_to(product, of, a, b);
        longer = swapped ? a : b;
        shorter = swapped ? b : a;
        lines = swapped ? of.m : of.n;
        rows = swapped ? of.n : of.m;
        bool contiguous = swapped ? of.flip_b : !of.flip_a;
        row_step = contiguous ? k : 1;
        p_step = contiguous ? 1 : rows;
        y = own_y + (start + product) * of.m * of.n;
        y_line = swapped ? of.n : 1;
        y_row = swapped ? 1 : of.n;
    }

    __device__ inline void store(unsigned row, unsigned line, float sum) const {
        if (bias) sum += bias[biased_by_line ? line : row];
        y[row * y_row + line * y_line] = sum;
    }
};

// WIDTH neighbouring elements, whose first address is a multiple of their size.
template <unsigned WIDTH> struct Neighbours {
    float of[WIDTH];
};

__device__ inline Neighbours<1> neighbours(const float *from, Neighbours<1>) { return {__ldg(from)}; }
__device__ inline Neighbours<4> neighbours(const float *from, Neighbours<4>) {
    float4 quad = __ldg((const float4 *)from);
    return {quad.x, quad.y, quad.z, quad.w};
}

// The long operand has the elements of neighbouring lines beside each other. A block computes 32 * WIDTH lines, WIDTH for each lane. Its
// warps take turns at groups of 4 elements of the sums, from `from` to before `until`. The groups are whole if WIDTH is 4.
template <unsigned ROWS, unsigned WIDTH> __device__ inline void across(const Thin &thin, unsigned from, unsigned until) {
    const unsigned DEPTH = 4;
    __shared__ float parts[WARPS][32 * WIDTH];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * 32 * WIDTH, line = first + lane * WIDTH;
    float sums[ROWS][WIDTH] = {};
    bool exists = line < thin.lines;
#pragma unroll 1
    for (unsigned p = from + warp * DEPTH; p < until; p += WARPS * DEPTH) {
        Neighbours<WIDTH> elements[DEPTH] = {};
#pragma unroll
        for (unsigned i = 0; i < DEPTH; i++) {
            if (exists && (WIDTH == 4 || i < until - p)) {
                elements[i] = neighbours(thin.longer + (Index)(p + i) * thin.lines + line, Neighbours<WIDTH>());
            }
        }
#pragma unroll
        for (unsigned row = 0; row < ROWS; row++) {
            if (ROWS > 1 && row >= thin.rows) continue;
            const float *own = thin.shorter + row * thin.row_step + p * thin.p_step;
#pragma unroll
            for (unsigned i = 0; i < DEPTH; i++) {
                float x = WIDTH == 4 || i < until - p ? __ldg(own + i * thin.p_step) : 0;
#pragma unroll
                for (unsigned j = 0; j < WIDTH; j++) sums[row][j] = fmaf(elements[i].of[j], x, sums[row][j]);
            }
        }
    }
#pragma unroll 1
    for (unsigned row = 0; row < thin.rows; row++) {
#pragma unroll
        for (unsigned j = 0; j < WIDTH; j++) {
            float sum = sums[0][j];
#pragma unroll
            for (unsigned i = 1; i < ROWS; i++) sum = row == i ? sums[i][j] : sum;
            parts[warp][lane * WIDTH + j] = sum;
        }
        __syncthreads();
        if (threadIdx.x < 32 * WIDTH && first + threadIdx.x < thin.lines) {
            float sum = parts[0][threadIdx.x];
            for (unsigned part = 1; part < WARPS; part++) sum += parts[part][threadIdx.x];
            thin.store(row, first + threadIdx.x, sum);
        }
        __syncthreads();
    }
}

// The long operand has the elements of a line beside each other. A team of 1 or of all warps computes 2 lines, so that it loads the rows
// half as often. Each lane sums the products of every 32nd group of WIDTH elements, or of every 256th.
template <unsigned ROWS, unsigned WIDTH> __device__ inline void along(const Thin &thin, unsigned from, unsigned until, unsigned team) {
    const unsigned LINES = 2;
    __shared__ float parts[WARPS][ROWS][LINES];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * (WARPS / team) * LINES;
    unsigned line = first + warp / team * LINES;
    bool neighbouring = thin.p_step == 1 && thin.row_step % WIDTH == 0;
    float sums[ROWS][LINES] = {};
    unsigned step = team * 32 * WIDTH;
#pragma unroll 1
    for (Index p = from + (warp % team * 32 + lane) * WIDTH; p < until; p += 2 * step) {
        Neighbours<WIDTH> elements[2][LINES] = {};
#pragma unroll
        for (unsigned turn = 0; turn < 2; turn++)
#pragma unroll
            for (unsigned i = 0; i < LINES; i++) {
                Index own = p + turn * step;
                if (line + i < thin.lines && own < until) {
                    elements[turn][i] = neighbours(thin.longer + (Index)(line + i) * thin.k + own, Neighbours<WIDTH>());
                }
            }
#pragma unroll
        for (unsigned turn = 0; turn < 2; turn++) {
            Index own = p + turn * step;
            if (own >= until) continue;
#pragma unroll
            for (unsigned row = 0; row < ROWS; row++) {
                if (ROWS > 1 && row >= thin.rows) continue;
                const float *other = thin.shorter + row * thin.row_step + own * thin.p_step;
                Neighbours<WIDTH> x;
                if (WIDTH > 1 && neighbouring) {
                    x = neighbours(other, Neighbours<WIDTH>());
                } else {
#pragma unroll
                    for (unsigned j = 0; j < WIDTH; j++) x.of[j] = __ldg(other + j * thin.p_step);
                }
#pragma unroll
                for (unsigned i = 0; i < LINES; i++)
#pragma unroll
                    for (unsigned j = 0; j < WIDTH; j++) sums[row][i] = fmaf(elements[turn][i].of[j], x.of[j], sums[row][i]);
            }
        }
    }
#pragma unroll 1
    for (unsigned row = 0; row < thin.rows; row++) {
#pragma unroll
        for (unsigned i = 0; i < LINES; i++) {
            float sum = sums[0][i];
#pragma unroll
            for (unsigned other = 1; other < ROWS; other++) sum = row == other ? sums[other][i] : sum;
#pragma unroll
            for (unsigned distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
            if (lane == 0) parts[warp][row][i] = sum;
        }
    }
    __syncthreads();
    // One thread for each result of the block: the lines of a row are neighbours.
    unsigned count = WARPS / team * LINES, row = threadIdx.x / count, own = threadIdx.x % count;
    if (row < thin.rows && first + own < thin.lines) {
        const float *part = &parts[own / LINES * team][row][own % LINES];
        float sum = *part;
        for (unsigned i = 1; i < team; i++) sum += part[i * ROWS * LINES];
        thin.store(row, first + own, sum);
    }
    __syncthreads();
}

// Block (x, y, z) computes product y, and each following one that is a multiple of the grid's height away, for the elements of the sums
// from z * each to before (z + 1) * each. If the grid has some depth, y is a workspace for the parts.
#define THIN(NAME, CALL)                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(BLOCK, 4)                                                                                 \
    NAME(unsigned *fault, unsigned step, const float *a, const float *b, const float *bias, float *y, const __grid_constant__ Shapes of,   \
         unsigned products, unsigned each, unsigned swapped, unsigned team) {                                                              \
        GUARD;                                                                                                                             \
        unsigned from = min(blockIdx.z * each, of.k), until = of.k - from < each ? of.k : from + each;                                     \
        for (unsigned product = blockIdx.y; product < products; product += gridDim.y) {                                                    \
            Thin thin(a, b, bias, y, of, product, (Index)blockIdx.z * products, swapped);                                                  \
            CALL;                                                                                                                          \
        }                                                                                                                                  \
    }
#define BOTH(ROWS, WIDTH)                                                                                                                  \
    THIN(thin_across_##ROWS##_f32_##WIDTH, (across<ROWS, WIDTH>(thin, from, until)))                                                       \
    THIN(thin_along_##ROWS##_f32_##WIDTH, (along<ROWS, WIDTH>(thin, from, until, team)))

BOTH(1, 1)
BOTH(1, 4)
BOTH(4, 4)
