// Shapes of products of matrices, with their batch dimensions.
#pragma once
#include "common.cuh"

// The shapes of a[…,m,k], b[…,k,n] and y[…,m,n].
struct Shapes {
    unsigned m, k, n;
    unsigned flip_a, flip_b; // 1 if the matrices of the operand are stored transposed.
    unsigned rank;           // Number of batch dimensions.
    unsigned in_a, in_b;     // A bit for each batch dimension that the operand has, the lowest for the outermost.
    Axes batch;
};

// Moves `a` and `b` to their matrices for product `product`.
template <typename T>
__device__ inline void go_to(Index product, const Shapes &of, const T *&a, const T *&b) {
    Index a_stride = (Index)of.m * of.k, b_stride = (Index)of.k * of.n;
#pragma unroll 1
    for (unsigned axis = of.rank; axis-- > 0;) {
        unsigned dim = of.batch.of[axis], at = split(product, dim);
        if (of.in_a >> axis & 1) {
            a += at * a_stride;
            a_stride *= dim;
        }
        if (of.in_b >> axis & 1) {
            b += at * b_stride;
            b_stride *= dim;
        }
    }
}
