// Copies from global to shared memory in the background, for GPUs from sm_80 on.
#pragma once

// Copies 16 bytes. Only the first `bytes` are read; zeros take the place of the others.
__device__ inline void copy(unsigned to, const void *from, unsigned bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// The same for 4 bytes.
__device__ inline void copy_word(unsigned to, const void *from, unsigned bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Ends a group of copies.
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `PENDING` groups of this thread's copies are under way.
template <unsigned PENDING> __device__ inline void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }
