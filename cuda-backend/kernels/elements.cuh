// The elements that a reduction reads: those of a tensor, or those that a computation gives.
#pragma once
#include "common.cuh"

// A tensor of `outer` blocks, each of `extent` rows of `inner` elements. The rows are reduced. Each block of threads reduces a part of
// `part` rows, and grid.y counts the parts.
struct Shape {
    Index outer, extent, inner, part;
};

// The place of an element: its number in the tensor, and its position along the axes of `Shape`.
struct Place {
    Index element, inner, row, outer;
};

// Elements in memory, of which `x` is the first one.
template <typename In> struct Memory {
    const typename In::Stored *x;

    __device__ Memory from(const Place &place) const { return {x + place.element}; }
    __device__ void begin() const {}
    __device__ void advance(Index elements, Index) { x += elements; }
    template <typename V> __device__ V value(Index elements, Index, unsigned within, V otherwise) const {
        return within ? In::value(x[elements]) : otherwise;
    }
    __device__ void store() const {}
};

// Elements that are computed where others are loaded. The host replaces the instruction by the computation (`ptx/opening.rs`), which loads
// and stores nothing if `within` is 0.
struct Opening {
    Place place;

    __device__ Opening from(const Place &place) const { return {place}; }
    // The host loads here what is the same in all rows.
    __device__ void begin() const { asm volatile("// opening begins %0 %1" ::"l"(place.inner), "l"(place.outer)); }
    __device__ void advance(Index elements, Index rows) { place.element += elements, place.row += rows; }
    __device__ float value(Index elements, Index rows, unsigned within, float otherwise) const {
        float value;
        asm volatile("mov.f32 %0, 0f00000000; // opening %0 %1 %2 %3 %4 %5"
                     : "=f"(value)
                     : "l"(place.element + elements), "l"(place.inner), "l"(place.row + rows), "l"(place.outer), "r"(within));
        return within ? value : otherwise;
    }
    // The host stores elements here that others read: a store between loads would make each of them wait for the one before.
    __device__ void store() const { asm volatile("// opening stores" ::: "memory"); }
};
