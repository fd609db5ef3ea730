// Teams of threads that reduce elements together.
#pragma once
#include "common.cuh"

// The largest number of threads of a block of teams.
#define MOST_THREADS 1024
// Attributes of a kernel whose blocks consist of teams.
#define TEAMS __launch_bounds__(MOST_THREADS, 1)

// Division of a block into teams. Each team works for one result, and the teams of a block for neighbouring results. Neighbouring threads
// belong to different teams. Both numbers are powers of two.
struct Team {
    unsigned width;   // Number of teams of a block.
    unsigned members; // Number of threads of a team. Each one takes every `members`-th element, in ascending order.
};

// The team of this thread in its block, and the thread's number in the team.
__device__ inline unsigned own_team(const Team &team) { return threadIdx.x & (team.width - 1); }
__device__ inline unsigned own_number(const Team &team) { return threadIdx.x / team.width; }

// The results of the block: those from `first_result` on, as many as it has teams, and then those `all_results` further on.
__device__ inline Index first_result(const Team &team) { return (Index)blockIdx.x * team.width; }
__device__ inline Index all_results(const Team &team) { return (Index)gridDim.x * team.width; }

// Combines the members' values by `Rule::both`, always in the same order, and returns the result to all of them. Each thread of the block
// calls this. A team of one member has its elements combined in ascending order.
template <typename Rule, typename T>
__device__ inline T together(T own, const Team &team) {
    if (team.members == 1) return own;
    __shared__ T values[MOST_THREADS];
    __syncthreads(); // All threads have read the previous result.
    values[threadIdx.x] = own;
    __syncthreads();
#pragma unroll 1
    for (unsigned half = team.members / 2; half > 0; half /= 2) {
        unsigned threads = half * team.width;
        if (threadIdx.x < threads) values[threadIdx.x] = Rule::both(values[threadIdx.x], values[threadIdx.x + threads]);
        __syncthreads();
    }
    return values[own_team(team)];
}

// The elements along one axis that belong to one result.
struct Lane {
    Index start;  // Position of the first element.
    Index stride; // Distance between neighbours.
    Index extent; // Number of elements.

    __device__ Index at(Index position) const { return start + position * stride; }
};

// The shape of a tensor as lanes. The lanes of a block of `extent * stride` elements lie side by side.
struct Lanes {
    Index count;
    Index stride;
    unsigned extent;
};

// Lane `number`. If there is none, it has no elements.
__device__ inline Lane lane(const Lanes &lanes, Index number) {
    if (number >= lanes.count) return {0, lanes.stride, 0};
    return {number + number / lanes.stride * lanes.stride * (lanes.extent - 1), lanes.stride, lanes.extent};
}

// An element of a lane with its position. It has no padding, so that all its bytes have a value.
template <unsigned SIZE> struct Word { typedef unsigned Of; };
template <> struct Word<8> { typedef Index Of; };
template <typename T> struct Found {
    typedef decltype(T() + T()) Value; // An `int` for integers of 8 bits.
    typedef typename Word<sizeof(Value)>::Of Position;

    Value value;
    Position position;
};
