// Shapes of products and convolutions on tensor cores, and the copies of their operands to shared memory.
//
// All of them are products of an image matrix and a plain matrix. Row p of the image matrix has what the window sees at position p: for
// each tap, the channels of one pixel. A matrix is the image matrix of images of one pixel, under a window of one tap.
#pragma once
#include "async.cuh"
#include "window.cuh"

// Number of threads of a block.
#define THREADS 128
// A pipeline stage has this many bytes of each line of the operands, in chunks of 16 bytes, which are copied one by one.
#define DEPTH 64
#define CHUNK 16
#define CHUNKS (DEPTH / CHUNK)

// Division of numbers below 2^31: a product and a shift.
struct Division {
    unsigned by, multiplier, shift;
};

__device__ inline unsigned quotient(unsigned value, const Division &division) {
    return (unsigned)((Index)value * division.multiplier >> division.shift);
}

// The division by a number that the host does not know.
__device__ inline Division division_by(unsigned by) {
    unsigned bits = by > 1 ? 32 - __clz(by - 1) : 0;
    return {by, (unsigned)((((Index)1 << (31 + bits)) + by - 1) / by), 31 + bits};
}

// How a window slides along one axis of the images: `input = position * stride + tap * dilation + origin`.
struct Slide {
    unsigned input; // Number of pixels.
    unsigned stride;
    int dilation, origin;
};

// The image matrix. The channels of a tap count as `channels.by`, a multiple of a chunk's elements: zeros follow the last one.
struct Images {
    Slide down, across;
    unsigned depth; // Number of channels.
    Division channels, taps; // `taps` of a row.
    Division columns, rows;  // Positions of the window.
};

// The phases of an input gradient along one axis: its pixels `phase`, `phase + stride`, … see the taps `first`, `first + step`, … of the
// filter, whose number depends on the phase.
struct Phases {
    unsigned stride, step, dilation, before, kernel;
    unsigned output; // Number of pixels of the gradient.
};

enum Result { PRODUCT, INPUT_GRADIENT, FILTER_GRADIENT };

struct Problem {
    Index a_size, b_size, y_size; // Elements of a matrix. `y_size` counts those of all results.
    Index b_tap;                  // Elements from one tap of B to the next, if its lines are rows.
    unsigned m, n, k;             // Of the product, with the zeros of the image matrix.
    unsigned down, along;         // Numbers of tiles.
    unsigned parts, part;         // Number of parts of the sums, and their length, a multiple of a stage's.
    unsigned result;              // A `Result`.
    unsigned a_across, b_across;  // 1 if the lines of the operand are columns in memory. Then A is the transposed image matrix.
    unsigned a_grain, b_grain;    // The chunks' addresses are multiples of it: 16 bytes, 4 or 2.
    unsigned wide;                // 1 if the rows of the result have a multiple of 8 elements.
    unsigned rank, in_a, in_b;    // Batch dimensions, and a bit for each that the operand has, the lowest for the outermost.
    Axes batch;
    Images images;
    unsigned b_line;     // Elements from one line of B to the next, if its lines are rows.
    unsigned b_depth;    // Channels of a tap in B, which count as `b_channels.by`.
    Division b_channels;
    Phases down_phases, across_phases; // Of an input gradient.
    unsigned bfloat;                   // 1 if elements of 16 bits are bf16, 0 if they are f16.
};

// The taps that a block sums over.
struct Window {
    Division taps;             // Taps of a row.
    int down, across;          // Origins of the slides.
    unsigned total;            // Number of elements of a sum.
    unsigned first, rows, step; // Number of the first tap in B, and distances to the next row of taps and to the next tap.
};

// Position of a window.
struct Position {
    unsigned image;
    unsigned row, column;
};

__device__ inline Position position_of(const Images &images, unsigned number) {
    unsigned row = quotient(number, images.columns), column = number - row * images.columns.by, image = quotient(row, images.rows);
    return {image, row - image * images.rows.by, column};
}

// A place in the sums over taps and their channels.
struct Place {
    unsigned tap, channel;
};

__device__ inline Place place_of(const Division &channels, unsigned number) {
    unsigned tap = quotient(number, channels);
    return {tap, number - tap * channels.by};
}

// Copies 16 bytes as `copy` does, from an address that is a multiple of `grain`: 4, or 2 for elements of 16 bits.
__device__ inline void copy_grains(unsigned to, const char *from, unsigned bytes, unsigned grain) {
    if (grain >= 4) {
#pragma unroll
        for (unsigned at = 0; at < CHUNK; at += 4) copy_word(to + at, from + at, bytes > at ? 4 : 0);
        return;
    }
    unsigned words[4];
#pragma unroll
    for (unsigned at = 0; at < 4; at++) {
        const unsigned short *pair = (const unsigned short *)from + 2 * at;
        words[at] = bytes > 4 * at ? pair[0] : 0;
        if (bytes > 4 * at + 2) words[at] |= (unsigned)pair[1] << 16;
    }
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}

// Layout of a stage of an operand: rows of 16-byte chunks. A row is a line's part, or with `across`, an element of all lines. Rows whose
// chunks would be in the same banks exchange their chunks: `swizzle` of a row changes the numbers of its chunks.
template <unsigned BYTES, unsigned LINES> struct Layout {
    enum : unsigned {
        PER_CHUNK = CHUNK / BYTES,
        WIDTH = LINES / PER_CHUNK,         // Chunks of a row, if it is across.
        ROW = WIDTH * CHUNK,               // Bytes of such a row.
        COPIES = LINES * CHUNKS / THREADS, // Chunks that a thread copies.
    };
    static_assert(COPIES > 0 && WIDTH >= 8, "all threads copy, and rows are at least as long as all banks");

    __device__ static unsigned swizzle(unsigned row, bool across) {
        if (!across) return row >> 1 & 3;
        // Elements of 4 bytes are loaded one by one, from 4 rows and 2 chunks at a time.
        return BYTES == 4 ? (row & 3) << 1 : row & 7;
    }
};

// Taps of one phase along an axis.
struct Phase {
    unsigned first, taps;
    int origin;
};

__device__ inline Phase phase_of(const Phases &axis, unsigned phase) {
    unsigned first = 0, some = min(axis.kernel, axis.step);
    int reach = (int)(phase + axis.before), stride = (int)axis.stride;
    while (first < some && (reach - (int)(first * axis.dilation)) % stride != 0) first++;
    unsigned taps = first < some ? quotient_up(axis.kernel - first, axis.step) : 0;
    return {first, taps, (reach - (int)(first * axis.dilation)) / stride};
}

// Window of product `product`, which is the number of the phases of an input gradient.
__device__ inline Window window_of(const Problem &of, unsigned product) {
    const Images &images = of.images;
    if (of.result != INPUT_GRADIENT) {
        return {images.taps, images.down.origin, images.across.origin, of.k, 0, images.taps.by, 1};
    }
    const Phases &down = of.down_phases, &across = of.across_phases;
    Phase above = phase_of(down, product / across.stride), left = phase_of(across, product % across.stride);
    unsigned total = above.taps * left.taps * images.channels.by, first = above.first * across.kernel + left.first;
    return {division_by(max(left.taps, 1)), above.origin, left.origin, total, first, down.step * across.kernel, across.step};
}

// How operands are counted: in chunks, if all chunks have addresses that are multiples of their size and the host has checked that 32 bits
// suffice, or in elements.
template <unsigned BYTES, bool ALIGNED> struct Unit {
    typedef int Offset;
    enum : unsigned { SIZE = CHUNK, ELEMENTS = CHUNK / BYTES };
};
template <unsigned BYTES> struct Unit<BYTES, false> {
    typedef long long Offset;
    enum : unsigned { SIZE = BYTES, ELEMENTS = 1 };
};

// The image matrix, as it comes to a block: lines from `first` on.
template <unsigned BYTES, unsigned LINES, bool ALIGNED> struct ImageOperand {
    typedef Layout<BYTES, LINES> Of;
    typedef Unit<BYTES, ALIGNED> Units;
    typedef typename Units::Offset Offset;

    // A line that the thread copies: where its first tap is. Rows and columns of aligned images are below 2^14.
    struct Line {
        Offset offset;
        int place;
    };

    const char *a;
    unsigned first;
    Line lines[ALIGNED ? Of::COPIES : 1];
    int row, column; // With `across`: of the thread's tap.
    unsigned bytes;  // With `across`: of a chunk.

    __device__ ImageOperand(const char *a, const Problem &of, const Window &window, unsigned first) : a(a), first(first) {
        const Images &images = of.images;
        if (of.a_across) {
            unsigned line = first + threadIdx.x % Of::WIDTH * Of::PER_CHUNK;
            Place place = place_of(images.channels, line);
            unsigned tap_row = quotient(place.tap, images.taps);
            row = (int)tap_row * images.down.dilation + window.down;
            column = (int)(place.tap - tap_row * images.taps.by) * images.across.dilation + window.across;
            lines[0].offset = place.channel / Units::ELEMENTS;
            bytes = line < of.m ? min(Of::PER_CHUNK, images.depth - place.channel) * BYTES : 0;
        } else if (ALIGNED) {
#pragma unroll
            for (unsigned i = 0; i < Of::COPIES; i++) {
                int down, right;
                lines[i].offset = line(of, window, i, down, right);
                // The row of a line that does not exist is behind all images.
                if (first + line_at(i) >= of.m) down = 0x7fff;
                lines[i].place = down << 16 | (right & 0xffff);
            }
        }
    }

    __device__ static unsigned line_at(unsigned i) { return threadIdx.x / CHUNKS + i * (THREADS / CHUNKS); }

    // Finds the first tap of line `i` of the thread.
    __device__ Offset line(const Problem &of, const Window &window, unsigned i, int &down, int &right) const {
        Position at = position_of(of.images, first + line_at(i));
        down = (int)(at.row * of.images.down.stride) + window.down;
        right = (int)(at.column * of.images.across.stride) + window.across;
        return pixel(of.images, at.image, down, right);
    }

    // Distance from the first element to a pixel, which may be outside the image.
    __device__ static Offset pixel(const Images &images, unsigned image, int row, int column) {
        Offset number = ((Offset)image * images.down.input + row) * images.across.input + column;
        return number * (Offset)(images.depth / Units::ELEMENTS);
    }

    // Starts the copy of `some` bytes of a chunk to shared memory at `to`, if the pixel is inside its image.
    __device__ void take(const Problem &of, Offset offset, int down, int right, unsigned some, unsigned to) const {
        if ((unsigned)down >= of.images.down.input || (unsigned)right >= of.images.across.input) some = 0;
        const char *from = a + (long long)offset * Units::SIZE;
        if (ALIGNED) copy(to, from, some);
        else copy_grains(to, some ? from : a, some, of.a_grain);
    }

    // Starts the copies of the stage with the elements from `k` on to shared memory at `to`.
    __device__ void bring(const Problem &of, const Window &window, unsigned k, unsigned to) const {
        const Images &images = of.images;
        unsigned thread = threadIdx.x;
        if (of.a_across) {
            unsigned chunk = thread % Of::WIDTH, own = thread / Of::WIDTH;
#pragma unroll(ALIGNED ? Of::COPIES : 1)
            for (unsigned i = 0; i < Of::COPIES; i++) {
                unsigned at = own + i * (THREADS / Of::WIDTH);
                Position position = position_of(images, k + at);
                int down = row + (int)(position.row * images.down.stride), right = column + (int)(position.column * images.across.stride);
                Offset offset = lines[0].offset + pixel(images, position.image, down, right);
                unsigned some = k + at < window.total ? bytes : 0;
                take(of, offset, down, right, some, to + at * Of::ROW + (chunk ^ Of::swizzle(at, true)) * CHUNK);
            }
            return;
        }
        unsigned chunk = thread % CHUNKS, at = k + chunk * Of::PER_CHUNK;
        Place place = place_of(images.channels, at);
        unsigned tap_row = quotient(place.tap, window.taps);
        int down = (int)tap_row * images.down.dilation;
        int right = (int)(place.tap - tap_row * window.taps.by) * images.across.dilation;
        Offset step = pixel(images, 0, down, right) + (Offset)(place.channel / Units::ELEMENTS);
        unsigned some = at < window.total ? min(Of::PER_CHUNK, images.depth - place.channel) * BYTES : 0;
#pragma unroll(ALIGNED ? Of::COPIES : 1)
        for (unsigned i = 0; i < Of::COPIES; i++) {
            unsigned own = line_at(i), into = to + own * DEPTH + (chunk ^ Of::swizzle(own, false)) * CHUNK;
            int own_down, own_right;
            Offset offset;
            if (ALIGNED) {
                offset = lines[i].offset;
                own_down = lines[i].place >> 16;
                own_right = (short)lines[i].place;
            } else {
                offset = line(of, window, i, own_down, own_right);
            }
            bool exists = ALIGNED || first + own < of.m;
            take(of, offset + step, own_down + down, own_right + right, exists ? some : 0, into);
        }
    }
};

// B, as it comes to a block: lines from `first` on.
template <unsigned BYTES, unsigned LINES, bool ALIGNED> struct PlainOperand {
    typedef Layout<BYTES, LINES> Of;
    typedef Unit<BYTES, ALIGNED> Units;
    typedef typename Units::Offset Offset;

    const char *b;
    unsigned line;

    __device__ PlainOperand(const char *b, const Problem &of, unsigned first) : b(b) {
        line = first + (of.b_across ? threadIdx.x % Of::WIDTH * Of::PER_CHUNK : threadIdx.x / CHUNKS);
    }

    __device__ void take(const Problem &of, Offset offset, unsigned some, unsigned to) const {
        const char *from = b + (long long)offset * Units::SIZE;
        if (ALIGNED) copy(to, from, some);
        else copy_grains(to, some ? from : b, some, of.b_grain);
    }

    // Starts the copies of the stage with the elements from `k` on to shared memory at `to`.
    __device__ void bring(const Problem &of, const Window &window, unsigned k, unsigned to) const {
        unsigned thread = threadIdx.x;
        if (of.b_across) {
            unsigned chunk = thread % Of::WIDTH, own = thread / Of::WIDTH;
            unsigned bytes = line < of.n ? min(of.n - line, Of::PER_CHUNK) * BYTES : 0;
#pragma unroll(ALIGNED ? Of::COPIES : 1)
            for (unsigned i = 0; i < Of::COPIES; i++) {
                unsigned at = own + i * (THREADS / Of::WIDTH);
                Place place = place_of(of.b_channels, k + at);
                unsigned some = k + at < window.total && place.channel < of.b_depth ? bytes : 0;
                Offset row = (Offset)place.tap * (Offset)of.b_depth + (Offset)place.channel;
                Offset offset = row * (Offset)(of.n / Units::ELEMENTS) + (Offset)(line / Units::ELEMENTS);
                take(of, offset, some, to + at * Of::ROW + (chunk ^ Of::swizzle(at, true)) * CHUNK);
            }
            return;
        }
        unsigned chunk = thread % CHUNKS, at = k + chunk * Of::PER_CHUNK;
        Place place = place_of(of.b_channels, at);
        unsigned tap_row = quotient(place.tap, window.taps);
        unsigned tap = window.first + tap_row * window.rows + (place.tap - tap_row * window.taps.by) * window.step;
        unsigned whole = at < window.total ? min(Of::PER_CHUNK, of.b_depth - place.channel) * BYTES : 0;
        Offset length = (Offset)(of.b_line / Units::ELEMENTS);
        Offset offset = (Offset)tap * (Offset)(of.b_tap / Units::ELEMENTS) + (Offset)line * length;
        offset += (Offset)(place.channel / Units::ELEMENTS);
#pragma unroll(ALIGNED ? Of::COPIES : 1)
        for (unsigned i = 0; i < Of::COPIES; i++) {
            unsigned own = thread / CHUNKS + i * (THREADS / CHUNKS);
            unsigned some = line + i * (THREADS / CHUNKS) < of.n ? whole : 0;
            take(of, offset, some, to + own * DEPTH + (chunk ^ Of::swizzle(own, false)) * CHUNK);
            offset += (THREADS / CHUNKS) * length;
        }
    }
};
