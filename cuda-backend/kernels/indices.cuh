// Index tensors of i32 or i64, for gather and scatter.
#pragma once
#include "common.cuh"

// The first parameters of every kernel.
#define BEGINNING unsigned *fault, unsigned step
// For a structure among the parameters: the kernel reads it where it is. A copy, indexed by variables, would be in local memory.
#define CONSTANT const __grid_constant__

typedef int i32;
typedef long long i64;

// Layout of the rows that an index tensor selects. A tensor is a sequence of slabs, each slab a sequence of rows of neighbouring
// elements. Several slabs can share the same part of the index tensor.
struct Selection {
    unsigned depth;   // Number of indices that select one row of a slab.
    unsigned dropped; // 1 if the op drops what a negative index selects, 0 if it refuses negative indices.
    Axes dims;        // Limit of each of these indices. A slab has as many rows as their product.
};

// What `selected` returns instead of the number of a row.
#define DROPPED (~(Index)0)
#define REFUSED (~(Index)0 - 1)

// Number of the row of a slab that the indices at `position` select.
template <typename I>
__device__ inline Index selected(const I *index, Index position, const Selection &selection) {
    Index row = 0;
#pragma unroll 1
    for (unsigned axis = 0; axis < selection.depth; axis++) {
        long long at = index[position * selection.depth + axis];
        if (at < 0 || at >= selection.dims.of[axis]) return at < 0 && selection.dropped ? DROPPED : REFUSED;
        row = row * selection.dims.of[axis] + at;
    }
    return row;
}

// Divides `value` by `by`, and returns the remainder. Like `split`, for a divisor that may need 64 bits. The compiler adds a test that
// chooses a division of 32 bits for small numbers.
__device__ inline Index split_wide(Index &value, Index by) {
    Index quotient = value / by, rest = value - quotient * by;
    value = quotient;
    return rest;
}
