// Mistakes with shared and local memory. See global.cu for the parameters.

#define KERNEL(name) extern "C" __global__ void name(float *out, const float *in, unsigned n)
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// Reads what another thread writes, without a barrier.
KERNEL(read_after_write) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x] = 0;
    __syncthreads();
    tile[threadIdx.x] = in[INDEX];
    out[INDEX] = tile[(threadIdx.x + 32) % 64];
}
KERNEL(read_after_write_right) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x] = 0;
    __syncthreads();
    tile[threadIdx.x] = in[INDEX];
    __syncthreads();
    out[INDEX] = tile[(threadIdx.x + 32) % 64];
}

// Writes what another thread reads, without a barrier.
KERNEL(write_after_read) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x] = in[INDEX];
    __syncthreads();
    float before = tile[(threadIdx.x + 32) % 64];
    tile[threadIdx.x] = before;
    out[INDEX] = before;
}
KERNEL(write_after_read_right) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x] = in[INDEX];
    __syncthreads();
    float before = tile[(threadIdx.x + 32) % 64];
    __syncthreads();
    tile[threadIdx.x] = before;
    out[INDEX] = before;
}

// Two threads write the same place.
KERNEL(write_write) {
    __shared__ volatile float tile[32];
    tile[threadIdx.x % 32] = in[INDEX];
    __syncthreads();
    out[INDEX] = tile[threadIdx.x % 32];
}
KERNEL(write_write_right) {
    __shared__ volatile float tile[32];
    if (threadIdx.x < 32) tile[threadIdx.x] = in[INDEX];
    __syncthreads();
    out[INDEX] = tile[threadIdx.x % 32];
}

// A reduction whose last steps trust that lanes of a warp run together.
KERNEL(warp_synchronous) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x] = in[INDEX];
    __syncthreads();
    for (unsigned half = 32; half > 0; half /= 2) {
        if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
        if (half > 16) __syncthreads();
    }
    out[INDEX] = in[INDEX];
}
KERNEL(warp_synchronous_right) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x] = in[INDEX];
    __syncthreads();
    for (unsigned half = 32; half > 0; half /= 2) {
        if (threadIdx.x < half) tile[threadIdx.x] += tile[threadIdx.x + half];
        __syncthreads();
    }
    out[INDEX] = tile[0];
}

// A barrier that half of the threads reach.
KERNEL(divergent_barrier) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x] = in[INDEX];
    if (threadIdx.x < 16) __syncthreads();
    out[INDEX] = tile[threadIdx.x];
}
KERNEL(divergent_barrier_right) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x] = in[INDEX];
    if (blockIdx.x < 2) __syncthreads();
    out[INDEX] = tile[threadIdx.x];
}

// A barrier after some threads have returned.
KERNEL(barrier_after_return) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x] = in[INDEX];
    if (threadIdx.x == 40) return;
    __syncthreads();
    out[INDEX] = tile[(threadIdx.x + 1) % 64];
}
KERNEL(barrier_after_return_right) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x] = in[INDEX];
    __syncthreads();
    if (threadIdx.x == 40) return;
    out[INDEX] = tile[(threadIdx.x + 1) % 64];
}

// Reads shared memory that nobody wrote.
KERNEL(uninitialised_shared) {
    __shared__ volatile float tile[65];
    tile[threadIdx.x] = in[INDEX];
    __syncthreads();
    out[INDEX] = tile[threadIdx.x + 1];
}
KERNEL(uninitialised_shared_right) {
    __shared__ volatile float tile[65];
    tile[threadIdx.x] = in[INDEX];
    if (threadIdx.x == 0) tile[64] = 0;
    __syncthreads();
    out[INDEX] = tile[threadIdx.x + 1];
}

// Accesses past the end of shared memory.
KERNEL(shared_past_end) {
    __shared__ volatile float tile[64];
    tile[threadIdx.x + 1] = in[INDEX];
    out[INDEX] = tile[threadIdx.x + 1];
}
KERNEL(shared_past_end_right) {
    __shared__ volatile float tile[65];
    tile[threadIdx.x + 1] = in[INDEX];
    out[INDEX] = tile[threadIdx.x + 1];
}

// Accesses past the end of a thread's own array.
KERNEL(local_past_end) {
    volatile float own[8];
    for (unsigned i = 0; i < 8; i++) own[i] = in[INDEX] + i;
    out[INDEX] = own[n / 32 + threadIdx.x * n];
}
KERNEL(local_past_end_right) {
    volatile float own[8];
    for (unsigned i = 0; i < 8; i++) own[i] = in[INDEX] + i;
    out[INDEX] = own[n / 64 + threadIdx.x % 4];
}

// Reads elements of a thread's own array that it did not write.
KERNEL(uninitialised_local) {
    volatile float own[8];
    for (unsigned i = 0; i < 7; i++) own[i] = in[INDEX] + i;
    out[INDEX] = own[threadIdx.x % 8];
}
KERNEL(uninitialised_local_right) {
    volatile float own[8];
    for (unsigned i = 0; i < 8; i++) own[i] = in[INDEX] + i;
    out[INDEX] = own[threadIdx.x % 8];
}

// The halves of a warp wait for each other at different places.
KERNEL(divergent_shuffle) {
    float value = in[INDEX];
    if (threadIdx.x % 32 < 16)
        value = __shfl_xor_sync(0xffffffffu, value, 1);
    else
        value += __ballot_sync(0xffffffffu, value > 7);
    out[INDEX] = value;
}
KERNEL(divergent_shuffle_right) {
    float value = in[INDEX];
    if (threadIdx.x % 32 < 16)
        value = __shfl_xor_sync(0x0000ffffu, value, 1);
    else
        value += __ballot_sync(0xffff0000u, value > 7);
    out[INDEX] = value;
}

// A shuffle reads from lanes that have left.
KERNEL(shuffle_of_absent_lanes) {
    if (threadIdx.x % 32 >= 16) return;
    out[INDEX] = __shfl_xor_sync(0xffffffffu, in[INDEX], 16);
}
KERNEL(shuffle_of_absent_lanes_right) {
    float value = __shfl_xor_sync(0xffffffffu, in[INDEX], 16);
    if (threadIdx.x % 32 >= 16) return;
    out[INDEX] = value;
}
