// The greatest elements along the last axis.
#include "numbers.cuh"
#include "teams.cuh"

// Position of an element that does not exist.
#define NONE 0xffffffff

// True if `x` is greater than `other`. NaN is the greatest.
template <typename T>
__device__ inline bool exceeds(T x, T other) {
    return x > other || (x != x && other == other);
}

// True if `a` comes before `b` in descending order, in which equal elements keep their order.
template <typename T>
__device__ inline bool precedes(const Found<T> &a, const Found<T> &b) {
    return exceeds(a.value, b.value) || (!exceeds(b.value, a.value) && a.position < b.position);
}

template <typename T> struct First {
    __device__ static Found<T> both(Found<T> a, Found<T> b) {
        if (a.position == NONE) return b;
        return b.position == NONE || precedes(a, b) ? a : b;
    }
};

// The first one of a thread's elements that come after the element `before`, or after none.
template <typename T>
__device__ inline Found<T> first_after(const Found<T> &before, const T *x, const Lane &lane, const Team &team) {
    Found<T> best = {0, NONE};
    for (Index at = own_number(team); at < lane.extent; at += team.members) {
        Found<T> element = {x[lane.at(at)], (typename Found<T>::Position)at};
        if (before.position == NONE || precedes(before, element)) best = First<T>::both(best, element);
    }
    return best;
}

// A team computes a lane: in each of `k` rounds, it finds the first of the members' best elements. Only the member whose element that was
// looks for its next one.
template <typename T>
__device__ inline void top_k(const T *x, T *values, int *positions, const Lanes &lanes, unsigned k, const Team &team) {
    for (Index first = first_result(team); first < lanes.count; first += all_results(team)) {
        Index result = first + own_team(team);
        Lane own = lane(lanes, result);
        Found<T> before = {0, NONE}, best = {0, NONE};
#pragma unroll 1
        for (unsigned round = 0; round < k; round++) {
            if (best.position == before.position) best = first_after(before, x, own, team);
            before = together<First<T>>(best, team);
            if (result < lanes.count && own_number(team) == 0) {
                values[result * k + round] = (T)before.value;
                positions[result * k + round] = (int)before.position;
            }
        }
    }
}

#define TOP_K(dtype, T)                                                                                                                    \
    extern "C" __global__ void TEAMS top_k_##dtype(unsigned *fault, unsigned step, const T *x, T *values, int *positions, Index rows,      \
                                                   unsigned extent, unsigned k, Team team) {                                               \
        GUARD;                                                                                                                             \
        top_k(x, values, positions, Lanes{rows, 1, extent}, k, team);                                                                      \
    }
FOR_NUMBERS(TOP_K)
