// Tiles of products on tensor cores: which one a block computes, and how its sums become results.
#pragma once
#include "tensor_core.cuh"

// Element types of results and of the bias. Kernels for bf16 are those for f16, in which the host replaces the types of conversions from
// f32 and of products. Conversions to f32 differ more, so they ask for the type.
struct Binary16 {
    enum : unsigned { BYTES = 2 };

    // Two f32 as two elements. The low half is the first.
    __device__ static unsigned pair(float first, float second) {
        unsigned bits;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
        return bits;
    }

    __device__ static float load(const void *from, unsigned at, unsigned bfloat) {
        unsigned short bits = ((const unsigned short *)from)[at];
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return bfloat ? __uint_as_float((unsigned)bits << 16) : value;
    }
};

struct Binary32 {
    enum : unsigned { BYTES = 4 };
    __device__ static unsigned pair(float first, float) { return __float_as_uint(first); }
    __device__ static float load(const void *from, unsigned at, unsigned) { return ((const float *)from)[at]; }
};

// Moves `a` and `b` to their matrices for product `product`.
__device__ inline void go_to(Index product, const Problem &of, unsigned bytes, const char *&a, const char *&b) {
    Index a_step = of.a_size * bytes, b_step = of.b_size * bytes;
#pragma unroll 1
    for (unsigned axis = of.rank; axis-- > 0;) {
        unsigned dim = of.batch.of[axis], at = split(product, dim);
        if (of.in_a >> axis & 1) {
            a += at * a_step;
            a_step *= dim;
        }
        if (of.in_b >> axis & 1) {
            b += at * b_step;
            b_step *= dim;
        }
    }
}

// Number of the result's row that belongs to line `line` of A. Returns false if there is none.
__device__ inline bool row_of(const Problem &of, Index product, unsigned line, Index &row) {
    row = product * of.m + line;
    if (line >= of.m || of.result == PRODUCT) return line < of.m;
    if (of.result == FILTER_GRADIENT) {
        Place place = place_of(of.images.channels, line);
        row = (Index)place.tap * of.images.depth + place.channel;
        return place.channel < of.images.depth;
    }
    const Phases &down = of.down_phases, &across = of.across_phases;
    Position at = position_of(of.images, line);
    unsigned phase = (unsigned)product, y = at.row * down.stride + phase / across.stride;
    unsigned x = at.column * across.stride + phase % across.stride;
    row = ((Index)at.image * down.output + y) * across.output + x;
    return y < down.output && x < across.output;
}

// Where a block's tile is. Tiles that run at the same time share operands: 8 rows of tiles, column by column.
struct Tile {
    Index product;
    unsigned part, row, column;

    __device__ Tile(const Problem &of) {
        const unsigned ROWS = 8;
        unsigned tile = blockIdx.x, all = of.down * of.along, own = tile % all, group = own / (ROWS * of.along);
        unsigned rows = min(ROWS, of.down - group * ROWS), in_group = own - group * ROWS * of.along;
        product = tile / all / of.parts;
        part = tile / all % of.parts;
        row = group * ROWS + in_group % rows;
        column = in_group / rows;
    }
};

// Stores up to 8 neighbouring sums of a row, from shared memory: as results with the bias, or as f32 among the parts.
template <typename Type>
__device__ inline void store(const Problem &of, const float *sums, Index at, unsigned column, const void *bias, void *y, float *parts) {
    if (parts) {
        bias = nullptr;
        y = parts;
    }
    bool as_f32 = parts || Type::BYTES == 4;
    if (!of.wide) {
        unsigned count = min(of.n - column, 8);
#pragma unroll 1
        for (unsigned i = 0; i < count; i++) {
            float sum = bias ? sums[i] + Type::load(bias, column + i, of.bfloat) : sums[i];
            if (as_f32) ((float *)y)[at + i] = sum;
            else ((unsigned short *)y)[at + i] = (unsigned short)Type::pair(sum, 0);
        }
        return;
    }
    float own[8];
#pragma unroll
    for (unsigned i = 0; i < 8; i += 4) *(float4 *)(own + i) = *(const float4 *)(sums + i);
    if (bias) {
#pragma unroll
        for (unsigned i = 0; i < 8; i++) own[i] += Type::load(bias, column + i, of.bfloat);
    }
    if (as_f32) {
#pragma unroll
        for (unsigned i = 0; i < 8; i += 4) *(float4 *)((float *)y + at + i) = *(const float4 *)(own + i);
        return;
    }
    uint4 pairs = {Type::pair(own[0], own[1]), Type::pair(own[2], own[3]), Type::pair(own[4], own[5]), Type::pair(own[6], own[7])};
    *(uint4 *)((unsigned short *)y + at) = pairs;
}

// Where a tile of COLUMNS columns has an element while its sums are in shared memory. Rows that are stored together are in different banks.
template <unsigned COLUMNS> __device__ inline unsigned staged_at(unsigned row, unsigned column) {
    return row * COLUMNS + (column ^ row % 4 * 8);
}

// Stores the sums of a tile of ROWS x COLUMNS elements, which are in shared memory.
template <typename Type, unsigned ROWS, unsigned COLUMNS>
__device__ inline void store_tile(const Problem &of, const Tile &tile, const float *staged, const void *bias, void *y, float *parts) {
    if (parts) parts += tile.part * of.y_size;
#pragma unroll 1
    for (unsigned at = threadIdx.x; at < ROWS * COLUMNS / 8; at += blockDim.x) {
        unsigned row = at / (COLUMNS / 8), column = at % (COLUMNS / 8) * 8, own = tile.column * COLUMNS + column;
        Index y_row;
        if (own >= of.n || !row_of(of, tile.product, tile.row * ROWS + row, y_row)) continue;
        store<Type>(of, staged + staged_at<COLUMNS>(row, column), y_row * of.n + own, own, bias, y, parts);
    }
}
