// Mean and variance of the elements along one axis in one pass, for devices that need not keep the order of sums. Every launch has the same
// order.
//
// A thread finds the sum of BATCH elements and the squares of their differences from their own mean, so that large means take no digits
// from small variances. What threads have found is joined by the formula of Chan, Golub and LeVeque: Algorithms for Computing the Sample
// Variance, 1983. An element takes about 15 instructions for 4 bytes, and an H200 can execute 35 while it waits for them.
#include "elements.cuh"
#include "formats.cuh"
#include "neighbours.cuh"
#include "quad.cuh"

// The sum of some elements, and the sum of the squares of their differences from their mean. V is float, or float4 for those of four
// neighbouring columns.
template <typename V> struct Sums {
    V elements, squares;
};

// Sums with the number of their elements and its inverse, which is 0 if there are none.
template <typename V> struct Moments {
    float count, inverse;
    Sums<V> of;

    __device__ static Moments with(float count, const Sums<V> &of) { return {count, count > 0 ? 1 / count : 0, of}; }
    __device__ V mean() const { return of.elements * inverse; }
    __device__ static Moments both(const Moments &a, const Moments &b) {
        Moments all = with(a.count + b.count, {a.of.elements + b.of.elements, a.of.squares + b.of.squares});
        V apart = b.mean() - a.mean();
        float weight = a.count * b.count * all.inverse;
        // The square may be infinite where one side has no elements.
        if (weight > 0) all.of.squares += apart * apart * weight;
        return all;
    }
};

// Returns the moments of a batch, of which the first `left` elements exist, and the others are 0.
template <typename V, unsigned COUNT> __device__ inline Moments<V> of_batch(const V (&batch)[COUNT], unsigned left) {
    Moments<V> own = Moments<V>::with(left, {});
#pragma unroll
    for (unsigned k = 0; k < COUNT; k++) own.of.elements += batch[k];
    V mean = own.mean();
#pragma unroll
    for (unsigned k = 0; k < COUNT; k++) {
        V apart = batch[k] - mean;
        if (k < left) own.of.squares += apart * apart;
    }
    return own;
}

// Returns the moments of the elements from row `at` to row `end`, `1 << shift` rows apart. `first` is at the first of them. Those of
// neighbouring rows are `inner` apart.
template <typename V, typename From>
__device__ inline Moments<V> share(From first, Index at, Index end, unsigned shift, Index inner) {
    Moments<V> all = {};
    if (at >= end) return all;
    first.begin();
    const unsigned batch_size = sizeof(V) == sizeof(float) ? BATCH : BATCH / 2;
    Index count = (end - at - 1 >> shift) + 1, distance = inner << shift;
#pragma unroll 1
    for (Index done = 0; done < count; done += batch_size, first.advance(distance * batch_size, (Index)batch_size << shift)) {
        V batch[batch_size];
        unsigned left = count - done < batch_size ? (unsigned)(count - done) : batch_size;
#pragma unroll
        for (unsigned k = 0; k < batch_size; k++) batch[k] = first.value(k * distance, (Index)k << shift, k < left, V());
        first.store();
        all = Moments<V>::both(all, of_batch(batch, left));
    }
    return all;
}

// The sums of the parts of a result.
struct Parts {
    const Sums<float> *of;
    Index extent, part;

    // Returns the moments of the parts from `at` to `end`, `distance` of them apart. Those of neighbouring parts are `inner` apart.
    __device__ Moments<float> share(Index at, Index end, Index distance, Index inner) const {
        Moments<float> all = {};
#pragma unroll 4
        for (; at < end; at += distance) {
            Index rows = extent - at * part;
            all = Moments<float>::both(all, Moments<float>::with(rows < part ? rows : part, of[at * inner]));
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
template <typename V> __device__ inline Moments<V> joined(const Moments<V> &own, unsigned members) {
    __shared__ Moments<V> values[BLOCK];
    values[threadIdx.x] = own;
    __syncthreads();
#pragma unroll 1
    for (unsigned half = BLOCK / 2; half >= BLOCK / members; half /= 2) {
        if (threadIdx.x < half) values[threadIdx.x] = Moments<V>::both(values[threadIdx.x], values[threadIdx.x + half]);
        __syncthreads();
    }
    // A thread writes the place next that it reads here.
    return values[threadIdx.x];
}

// Writes the mean and the variance of columns, or with several parts, their sums to `mean`. The last parts are the first ones that run, so
// that the cache has the beginning of the tensor for the kernel that reads it next.
template <typename V, typename From>
__device__ inline void columns(const From &x, V *mean, V *variance, const Shape &shape, unsigned members) {
    unsigned part = gridDim.y - 1 - blockIdx.y;
#pragma unroll 1
    for (Index at = blockIdx.x; at < strips(shape, members); at += gridDim.x) {
        Strip strip(at, shape, members);
        Index start = part * shape.part + strip.number, end = (part + 1) * shape.part;
        if (end > shape.extent) end = shape.extent;
        Place place = {(strip.outer * shape.extent + start) * shape.inner + strip.inner, strip.inner, start, strip.outer};
        Moments<V> own = share<V>(x.from(place), start, strip.within ? end : 0, __ffs(members) - 1, shape.inner);
        Moments<V> all = joined(own, members);
        if (!strip.within || strip.number > 0) continue;
        if (gridDim.y > 1) {
            const unsigned lanes = sizeof(V) / sizeof(float);
            Sums<float> *to = (Sums<float> *)mean + ((strip.outer * gridDim.y + part) * shape.inner + strip.inner) * lanes;
#pragma unroll
            for (unsigned lane = 0; lane < lanes; lane++) to[lane] = {((float *)&all.of.elements)[lane], ((float *)&all.of.squares)[lane]};
        } else {
            Index result = strip.outer * shape.inner + strip.inner;
            mean[result] = all.of.elements / all.count, variance[result] = all.of.squares / all.count;
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    moments_f32(unsigned *fault, unsigned step, const float *x, float *mean, float *variance, Shape shape, unsigned members) {
    GUARD;
    columns(Memory<F32>{x}, mean, variance, shape, members);
}

// Four neighbouring columns in memory are one of float4.
struct Quad {
    typedef float4 Stored;
    __device__ static float4 value(float4 stored) { return stored; }
};

extern "C" __global__ void __launch_bounds__(BLOCK)
    moments_quads_f32(unsigned *fault, unsigned step, const float4 *x, float4 *mean, float4 *variance, Shape shape, unsigned members) {
    GUARD;
    columns(Memory<Quad>{x}, mean, variance, shape, members);
}

// The parameters of the computation follow the others.
extern "C" __global__ void __launch_bounds__(BLOCK)
    moments_opening_f32(unsigned *fault, unsigned step, float *mean, float *variance, Shape shape, unsigned members) {
    GUARD;
    columns(Opening{}, mean, variance, shape, members);
}

// Joins the sums of the parts of each column.
extern "C" __global__ void __launch_bounds__(BLOCK)
    moments_parts_f32(unsigned *fault, unsigned step, const Sums<float> *x, float *mean, float *variance, Shape shape, unsigned members) {
    GUARD;
    Index parts = (shape.extent - 1) / shape.part + 1;
#pragma unroll 1
    for (Index at = blockIdx.x; at < strips(shape, members); at += gridDim.x) {
        Strip strip(at, shape, members);
        Parts own = {x + strip.outer * parts * shape.inner + strip.inner, shape.extent, shape.part};
        Moments<float> all = joined(own.share(strip.number, strip.within ? parts : 0, members, shape.inner), members);
        if (!strip.within || strip.number > 0) continue;
        Index result = strip.outer * shape.inner + strip.inner;
        mean[result] = all.of.elements / all.count, variance[result] = all.of.squares / all.count;
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
__device__ inline void row_element(const float (&x)[1], Index element, Index column, Index row, unsigned within) {
    asm volatile("// row element %0 %1 %2 %3 %4" ::"f"(x[0]), "l"(element), "l"(column), "l"(row), "r"(within));
}
__device__ inline void row_element(const float (&x)[4], Index element, Index column, Index row, unsigned within) {
    asm volatile("// row element %0 %1 %2 %3 %4 %5 %6 %7"
                 ::"f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "l"(element), "l"(column), "l"(row), "r"(within));
}
__device__ inline void row_stores() { asm volatile("// row stores" ::: "memory"); }

// Normalizes rows of `extent` elements, a multiple of LANES: a team of neighbouring threads takes one row. A thread holds COUNT accesses of
// LANES elements, so that a row of up to COUNT * LANES * 256 elements is read once. A longer one is read twice, the second time from the
// cache.
template <unsigned COUNT, unsigned LANES>
__device__ inline void normalize(const float *x, Index rows, unsigned extent, unsigned members) {
    struct __align__(4 * LANES) Lanes {
        float of[LANES];
    };
    Team team = {members};
    unsigned number = team.number() * LANES, distance = members * LANES;
#pragma unroll 1
    for (Index first = (Index)blockIdx.x * team.count(); first < rows; first += (Index)gridDim.x * team.count()) {
        Index row = first + team.own(), start = row * extent;
        unsigned end = row < rows ? extent : 0;
        Lanes held[COUNT];
        auto load = [&](unsigned from) {
#pragma unroll
            for (unsigned k = 0; k < COUNT; k++, from += distance) {
                held[k] = from < end ? *(const Lanes *)(x + start + from) : Lanes();
            }
        };
        Moments<float> own = {};
#pragma unroll 1
        for (unsigned from = number; from < end; from += COUNT * distance) {
            unsigned left = ((end - from - 1) / LANES >> __ffs(members) - 1) + 1;
            load(from);
            own = Moments<float>::both(own, of_batch((const float (&)[COUNT * LANES])held, (left < COUNT ? left : COUNT) * LANES));
        }
        float mean = across<Sum>(own.of.elements, team) / extent, apart = own.count == 0 ? 0 : own.mean() - mean;
        float variance = across<Sum>(own.of.squares + apart * apart * own.count, team) / extent;
        row_begins(mean, variance, row, row < rows, row < rows && team.number() == 0);
#pragma unroll 1
        for (unsigned from = number; from < end; from += COUNT * distance) {
            if (extent > COUNT * distance) load(from);
            unsigned at = from;
#pragma unroll
            for (unsigned k = 0; k < COUNT; k++, at += distance) {
                row_element(held[k].of, start + at, at, row, at < end);
                if (LANES > 1 || k % BATCH == BATCH - 1) row_stores();
            }
        }
    }
}

// The parameters of the computation follow the others.
#define NORMALIZE(kind, COUNT, LANES)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(BLOCK)                                                                                    \
        normalize##kind##_f32(unsigned *fault, unsigned step, const float *x, Index rows, unsigned extent, unsigned members) {             \
        GUARD;                                                                                                                             \
        normalize<COUNT, LANES>(x, rows, extent, members);                                                                                 \
    }
NORMALIZE(_8, 8, 1)
NORMALIZE(_16, 16, 1)
NORMALIZE(_wide_8, 2, 4)
NORMALIZE(_wide_16, 4, 4)
