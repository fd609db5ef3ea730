// Teams of neighbouring threads that compute a row together.
#pragma once
#include "common.cuh"

// Number of threads of a block.
#define BLOCK 256
#define WARP 32
// Number of elements that a thread loads before it uses them. With 2048 threads of a multiprocessor, these are 64 KiB of f32 on their way,
// and 20 KiB are enough for the memory of an H100. Rows whose length is a multiple of 4 are read by 16 bytes; others need no alignment.
#define BATCH 8

// The position of a thread in a block that is divided into teams of `members` threads, a power of two up to BLOCK.
struct Team {
    unsigned members;

    __device__ unsigned own() const { return threadIdx.x / members; }
    __device__ unsigned number() const { return threadIdx.x & (members - 1); }
    // Number of teams of a block.
    __device__ unsigned count() const { return BLOCK / members; }
};

// Combines the values of a team's threads by `Rule::both`, always in the same order. Returns the result to all of them. Each thread of the
// block calls this.
template <typename Rule, typename T>
__device__ inline T across(T value, const Team &team) {
    unsigned near = team.members < WARP ? team.members : WARP;
#pragma unroll 1
    for (unsigned distance = near / 2; distance > 0; distance /= 2)
        value = Rule::both(value, __shfl_xor_sync(~0u, value, distance));
    if (team.members <= WARP) return value;
    __shared__ T warps[BLOCK / WARP];
    __syncthreads(); // All threads have read the previous values.
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
    __syncthreads();
    unsigned first = team.own() * (team.members / WARP);
    value = warps[first];
#pragma unroll 1
    for (unsigned warp = 1; warp < team.members / WARP; warp++) value = Rule::both(value, warps[first + warp]);
    return value;
}
