// Products of f32 matrices without tensor cores, and the steps of optimizers that are fused with them.
#pragma once
#include "adam.cuh"
#include "shapes.cuh"
#include "tiles.cuh"

// What happens to the elements of a product.
enum Kind : unsigned { STORED, SGD, ADAM };

template <unsigned COUNT> struct Elements {
    float of[COUNT];
};

__device__ inline Elements<1> load(const float *from, Index at, float) { return {from[at]}; }
__device__ inline Elements<4> load(const float *from, Index at, float4) {
    float4 quad = *(const float4 *)(from + at);
    return {quad.x, quad.y, quad.z, quad.w};
}
__device__ inline void save(float *to, Index at, const Elements<1> &one) { to[at] = one.of[0]; }
__device__ inline void save(float *to, Index at, const Elements<4> &quad) {
    *(float4 *)(to + at) = make_float4(quad.of[0], quad.of[1], quad.of[2], quad.of[3]);
}
__device__ inline Elements<1> elements(float one) { return {one}; }
__device__ inline Elements<4> elements(float4 quad) { return {quad.x, quad.y, quad.z, quad.w}; }

// The end of a product: the bias of the column is added, if there is one, or, if the kernel STEPS, the sum is the gradient for a step of
// gradient descent or of Adam. The variables and their moments may be the same before and after the step. If it CLOSES, the host completes
// the store.
template <bool STEPS, bool CLOSES> struct End {
    Kind kind;
    unsigned columns; // Number of columns of the product.
    Index start;      // Position of the product's first element.
    const float *w;   // The bias, or the variable.
    const float *m, *v;
    float *new_w, *new_m, *new_v;
    float rate;
    Adam<float> adam;

    __device__ inline Index row(unsigned row) const { return start + (Index)row * columns; }

    template <typename Q> __device__ inline void store(Index at, unsigned column, Q sum) const {
        auto sums = elements(sum);
        const unsigned COUNT = sizeof(Q) / sizeof(float);
        if (!STEPS || kind == STORED) {
            if (w) {
                auto bias = load(w, column, sum);
#pragma unroll
                for (unsigned i = 0; i < COUNT; i++) sums.of[i] += bias.of[i];
            }
        } else {
            auto own = load(w, at, sum);
            if (kind == SGD) {
#pragma unroll
                for (unsigned i = 0; i < COUNT; i++) sums.of[i] = own.of[i] - rate * sums.of[i];
            } else {
                auto own_m = load(m, at, sum), own_v = load(v, at, sum);
#pragma unroll
                for (unsigned i = 0; i < COUNT; i++) {
                    adam.step(own.of[i], own_m.of[i], own_v.of[i], sums.of[i]);
                    sums.of[i] = own.of[i];
                }
                save(new_m, at, own_m);
                save(new_v, at, own_v);
            }
        }
        if (CLOSES)
            close(at, *(const Q *)sums.of);
        else
            save(new_w, at, sums);
    }
};

// The parameters of an end, which follow those of the product.
#define END_PARAMETERS                                                                                                                     \
    Kind kind, const float *w, const float *m, const float *v, const float *learning_rate, const long long *iterations, float *new_w,      \
        float *new_m, float *new_v, AdamAttributes by
#define END_ARGUMENTS kind, w, m, v, learning_rate, iterations, new_w, new_m, new_v, by

// Returns the end with these parameters. All threads of the block take part.
template <bool STEPS, bool CLOSES> __device__ inline End<STEPS, CLOSES> end_of(unsigned columns, Index start, END_PARAMETERS) {
    End<STEPS, CLOSES> end = {STORED, columns, start, w, m, v, new_w, new_m, new_v};
    if (STEPS) {
        __shared__ float alpha;
        if (threadIdx.x == 0) alpha = kind == ADAM ? Adam<float>::corrected(*learning_rate, *iterations, by) : 0;
        __syncthreads();
        end.kind = kind;
        end.rate = kind == SGD ? *learning_rate : 0;
        end.adam = {by.rate_1, by.rate_2, by.epsilon, alpha};
    }
    return end;
}

// y = a · b. Block (x, y, z) computes tile x of product y, and of each following product that is a multiple of the grid's height away, for
// the elements of the sums from z * each to before (z + 1) * each. If the grid has some depth, new_w is a workspace for the parts. `Lines`
// brings lines of the operands to `memory`.
template <typename T, template <unsigned, unsigned, unsigned> class Lines, bool STEPS, bool CLOSES>
__device__ inline void gemm(float *memory, const float *a, const float *b, const Shapes &of, unsigned products, unsigned each,
                            END_PARAMETERS) {
    unsigned down = (of.m - 1) / T::ROWS + 1, along = (of.n - 1) / T::COLUMNS + 1;
    Position position = position_of(blockIdx.x, down, along);
    unsigned first_row = position.row * T::ROWS, first_column = position.column * T::COLUMNS;
    unsigned from = at_most(blockIdx.z * each, of.k), until = of.k - from < each ? of.k : from + each;
#pragma unroll 1
    for (unsigned product = blockIdx.y; product < products; product += gridDim.y) {
        const float *own_a = a, *own_b = b;
        go_to(product, of, own_a, own_b);
        Lines<T::ROWS, T::DEPTH, T::THREADS> left(own_a, of.m, of.k, !of.flip_a, first_row, from, until);
        Lines<T::COLUMNS, T::DEPTH, T::THREADS> right(own_b, of.n, of.k, of.flip_b, first_column, from, until);
        Sums<T> sums;
        multiply<T>(memory, left, right, until - from, sums);
        Index start = ((Index)blockIdx.z * products + product) * of.m * of.n;
        finish<T>(memory, sums, first_row, first_column, of.m, of.n, end_of<STEPS, CLOSES>(of.n, start, END_ARGUMENTS));
    }
}
