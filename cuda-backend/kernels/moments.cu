// Mean and variance of the elements along one axis in one pass, for devices that need not keep the order of sums. Every launch has the same
// order.
//
// A thread finds the sum of BATCH elements and the squares of their differences from their own mean, so that large means take no digits
// from small variances. What threads have found is joined by the formula of Chan, Golub and LeVeque: Algorithms for Computing the Sample
// Variance, 1983. An element takes about 15 instructions for 4 bytes, and an H100 can execute 40 while it waits for them.
#include "elements.cuh"
#include "formats.cuh"
#include "neighbours.cuh"

// The sum of some elements, and the sum of the squares of their differences from their mean.
struct Sums {
    float elements, squares;
};

// Sums with the number of their elements.
struct Moments {
    float count;
    Sums of;

    __device__ float mean() const { return of.elements / count; }
    __device__ static Moments both(const Moments &a, const Moments &b) {
        if (b.count == 0) return a;
        if (a.count == 0) return b;
        float count = a.count + b.count, apart = b.mean() - a.mean(), weight = a.count / count * b.count;
        return {count, {a.of.elements + b.of.elements, a.of.squares + b.of.squares + apart * apart * weight}};
    }
};

// Returns the moments of a batch, of which the first `left` elements exist, and the others are 0.
template <unsigned COUNT> __device__ inline Moments of_batch(const float (&batch)[COUNT], unsigned left) {
    Moments own = {(float)left, {0, 0}};
#pragma unroll
    for (unsigned k = 0; k < COUNT; k++) own.of.elements += batch[k];
    float mean = own.mean();
#pragma unroll
    for (unsigned k = 0; k < COUNT; k++) {
        float apart = k < left ? batch[k] - mean : 0;
        own.of.squares += apart * apart;
    }
    return own;
}

// Returns the moments of the elements from row `at` to row `end`, `1 << shift` rows apart. `first` is at the first of them. Those of
// neighbouring rows are `inner` apart.
template <typename From>
__device__ inline Moments share(From first, Index at, Index end, unsigned shift, Index inner) {
    Moments all = {0, {0, 0}};
    if (at >= end) return all;
    first.begin();
    Index count = (end - at - 1 >> shift) + 1, distance = inner << shift;
#pragma unroll 1
    for (Index done = 0; done < count; done += BATCH, first.advance(distance * BATCH, (Index)BATCH << shift)) {
        float batch[BATCH];
        unsigned left = count - done < BATCH ? (unsigned)(count - done) : BATCH;
#pragma unroll
        for (unsigned k = 0; k < BATCH; k++) batch[k] = first.value(k * distance, (Index)k << shift, k < left, 0.0f);
        first.store();
        all = Moments::both(all, of_batch(batch, left));
    }
    return all;
}

// The sums of the parts of a result.
struct Parts {
    const Sums *of;
    Index extent, part;

    // Returns the moments of the parts from `at` to `end`, `distance` of them apart. Those of neighbouring parts are `inner` apart.
    __device__ Moments share(Index at, Index end, Index distance, Index inner) const {
        Moments all = {0, {0, 0}};
#pragma unroll 1
        for (; at < end; at += distance) {
            Index rows = extent - at * part;
            all = Moments::both(all, {(float)(rows < part ? rows : part), of[at * inner]});
        }
        return all;
    }
};

// The place of a thread and its work: `members` threads have a column, and neighbouring threads have neighbouring columns.
struct Strip {
    Index outer, inner;
    unsigned number;
    bool within;

    __device__ Strip(Index strip, const Shape &shape, unsigned members) {
        unsigned width = BLOCK / members;
        Index strips = (shape.inner - 1) / width + 1;
        outer = strip / strips;
        inner = (strip - outer * strips) * width + (threadIdx.x & (width - 1));
        number = threadIdx.x / width;
        within = inner < shape.inner;
    }
};

// Number of strips of all columns.
__device__ inline Index strips(const Shape &shape, unsigned members) { return shape.outer * ((shape.inner - 1) / (BLOCK / members) + 1); }

// Joins the moments of the threads of each column. Returns those of the column to the first thread. Each thread of the block calls this.
__device__ inline Moments joined(const Moments &own, unsigned members) {
    __shared__ Moments values[BLOCK];
    values[threadIdx.x] = own;
    __syncthreads();
#pragma unroll 1
    for (unsigned half = BLOCK / 2; half >= BLOCK / members; half /= 2) {
        if (threadIdx.x < half) values[threadIdx.x] = Moments::both(values[threadIdx.x], values[threadIdx.x + half]);
        __syncthreads();
    }
    // A thread writes the place next that it reads here.
    return values[threadIdx.x];
}

// Writes the mean and the variance of columns, or with several parts, their sums to `mean`.
template <typename From>
__device__ inline void columns(const From &x, float *mean, float *variance, const Shape &shape, unsigned members) {
#pragma unroll 1
    for (Index at = blockIdx.x; at < strips(shape, members); at += gridDim.x) {
        Strip strip(at, shape, members);
        Index start = blockIdx.y * shape.part + strip.number, end = (blockIdx.y + 1) * shape.part;
        if (end > shape.extent) end = shape.extent;
        Place place = {(strip.outer * shape.extent + start) * shape.inner + strip.inner, strip.inner, start, strip.outer};
        Moments own = share(x.from(place), start, strip.within ? end : 0, __ffs(members) - 1, shape.inner);
        Moments all = joined(own, members);
        if (!strip.within || strip.number > 0) continue;
        if (gridDim.y > 1) {
            ((Sums *)mean)[(strip.outer * gridDim.y + blockIdx.y) * shape.inner + strip.inner] = all.of;
        } else {
            Index result = strip.outer * shape.inner + strip.inner;
            mean[result] = all.mean(), variance[result] = all.of.squares / all.count;
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    moments_f32(unsigned *fault, unsigned step, const float *x, float *mean, float *variance, Shape shape, unsigned members) {
    GUARD;
    columns(Memory<F32>{x}, mean, variance, shape, members);
}

// The parameters of the computation follow the others.
extern "C" __global__ void __launch_bounds__(BLOCK)
    moments_opening_f32(unsigned *fault, unsigned step, float *mean, float *variance, Shape shape, unsigned members) {
    GUARD;
    columns(Opening{}, mean, variance, shape, members);
}

// Joins the sums of the parts of each column.
extern "C" __global__ void __launch_bounds__(BLOCK)
    moments_parts_f32(unsigned *fault, unsigned step, const Sums *x, float *mean, float *variance, Shape shape, unsigned members) {
    GUARD;
    Index parts = (shape.extent - 1) / shape.part + 1;
#pragma unroll 1
    for (Index at = blockIdx.x; at < strips(shape, members); at += gridDim.x) {
        Strip strip(at, shape, members);
        Parts own = {x + strip.outer * parts * shape.inner + strip.inner, shape.extent, shape.part};
        Moments all = joined(own.share(strip.number, strip.within ? parts : 0, members, shape.inner), members);
        if (!strip.within || strip.number > 0) continue;
        Index result = strip.outer * shape.inner + strip.inner;
        mean[result] = all.mean(), variance[result] = all.of.squares / all.count;
    }
}

struct Sum {
    __device__ static float both(float a, float b) { return a + b; }
};

// Places where the host writes the rest of a group (`ptx/opening.rs`): what has one value for each row, of which the thread with `first`
// stores results; what has one for each element; and the stores of elements, behind the loads of others. They load and store nothing if
// `within` is 0.
__device__ inline void row_begins(float mean, float variance, Index row, unsigned within, unsigned first) {
    asm volatile("// row begins %0 %1 %2 %3 %4" ::"f"(mean), "f"(variance), "l"(row), "r"(within), "r"(first));
}
__device__ inline void row_element(float x, Index element, Index column, Index row, unsigned within) {
    asm volatile("// row element %0 %1 %2 %3 %4" ::"f"(x), "l"(element), "l"(column), "l"(row), "r"(within));
}
__device__ inline void row_stores() { asm volatile("// row stores" ::: "memory"); }

// Normalizes rows of `extent` elements: a team of neighbouring threads takes one row. A thread holds COUNT elements, so that a row of up
// to COUNT times 256 is read once. A longer one is read twice, the second time from the cache.
template <unsigned COUNT>
__device__ inline void normalize(const float *x, Index rows, unsigned extent, unsigned members) {
    Team team = {members};
    unsigned number = team.number(), shift = __ffs(members) - 1;
#pragma unroll 1
    for (Index first = (Index)blockIdx.x * team.count(); first < rows; first += (Index)gridDim.x * team.count()) {
        Index row = first + team.own(), start = row * extent;
        unsigned end = row < rows ? extent : 0;
        float held[COUNT];
        auto load = [&](unsigned from) {
#pragma unroll
            for (unsigned k = 0; k < COUNT; k++) held[k] = from + k * members < end ? x[start + from + k * members] : 0;
        };
        Moments own = {0, {0, 0}};
#pragma unroll 1
        for (unsigned from = number; from < end; from += COUNT * members) {
            unsigned left = (end - from - 1 >> shift) + 1;
            load(from);
            own = Moments::both(own, of_batch(held, left < COUNT ? left : COUNT));
        }
        float mean = across<Sum>(own.of.elements, team) / extent, apart = own.count == 0 ? 0 : own.mean() - mean;
        float variance = across<Sum>(own.of.squares + apart * apart * own.count, team) / extent;
        row_begins(mean, variance, row, row < rows, row < rows && number == 0);
#pragma unroll 1
        for (unsigned from = number; from < end; from += COUNT * members) {
            if (extent > COUNT * members) load(from);
#pragma unroll
            for (unsigned k = 0; k < COUNT; k++) {
                unsigned at = from + k * members;
                row_element(held[k], start + at, at, row, at < end);
                if (k % BATCH == BATCH - 1) row_stores();
            }
        }
    }
}

// The parameters of the computation follow the others.
#define NORMALIZE(COUNT)                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                                    \
        normalize_##COUNT##_f32(unsigned *fault, unsigned step, const float *x, Index rows, unsigned extent, unsigned members) {           \
        GUARD;                                                                                                                             \
        normalize<COUNT>(x, rows, extent, members);                                                                                        \
    }
NORMALIZE(8)
NORMALIZE(16)
