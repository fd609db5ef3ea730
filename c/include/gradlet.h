/*
 * gradlet: trains and runs models in firmware and programs that are written in C. The guide is c/README.md.
 *
 * Every function that can fail returns a gradlet_result, whose code is 0 if the call succeeded. Null, misaligned, overlapping and small
 * memory is an error. The caller promises what no function can see:
 *
 * - Memory has the stated size, and exists as long as the struct that uses it. Structs, arenas and queues share no memory.
 * - A struct is zero before it is initialised for the first time after a reset: a static, or one that begins with `= {0}`. It may otherwise
 *   hold the mark of a call that the reset has ended, and be GRADLET_CODE_IN_USE for ever. Zeroes also free a struct whose call never
 *   returned. A struct is initialised where it stays, because a copy is not valid.
 * - Threads may share a program. Each other struct is used by one thread at a time.
 * - Callbacks return: no longjmp, and no C++ exception. They load no program that the call around them uses.
 *
 * cbindgen generates this file from the sources in c/src.
 */


#ifndef GRADLET_H
#define GRADLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Warns if C does not use a result. */
#ifndef GRADLET_CHECKED
#if defined(__GNUC__)
#define GRADLET_CHECKED __attribute__((warn_unused_result))
#else
#define GRADLET_CHECKED
#endif
#endif

/**
 * Version of this header: 65536 times the major version, plus 256 times the minor one, plus the patch.
 */
#define GRADLET_VERSION 256

/**
 * Alignment of artifacts and arenas, in bytes.
 */
#define GRADLET_ALIGNMENT 16

/**
 * Size of a `gradlet_program`, in words of a pointer's size.
 */
#define GRADLET_PROGRAM_WORDS 40

/**
 * Size of a `gradlet_loading`, in words of a pointer's size.
 */
#define GRADLET_LOADING_WORDS 48

/**
 * Size of a `gradlet_session`, in words of a pointer's size.
 */
#define GRADLET_SESSION_WORDS 80

/**
 * Size of a `gradlet_slots`, in words of a pointer's size.
 */
#define GRADLET_SLOTS_WORDS 144

/**
 * Size of a `gradlet_telemetry`, in words of a pointer's size.
 */
#define GRADLET_TELEMETRY_WORDS 20

/**
 * The codes of outcomes. A code never changes its meaning. Up to 38, they are those of errors in the format's specification.
 */
typedef enum gradlet_code {
    /**
     * The call succeeded.
     */
    GRADLET_CODE_OK = 0,
    /**
     * An op of the artifact does not take this number of inputs (numbers: number).
     */
    GRADLET_CODE_ARITY = 1,
    /**
     * An op of the artifact does not take the element type of an input (numbers: input).
     */
    GRADLET_CODE_DTYPE = 2,
    /**
     * An op of the artifact does not take the rank of an input (numbers: input).
     */
    GRADLET_CODE_RANK = 3,
    /**
     * A dimension of an input of an op differs from the required one (numbers: input, axis, required, actual).
     */
    GRADLET_CODE_DIMENSION = 4,
    /**
     * An attribute of an op has a value that the op does not allow (numbers: index).
     */
    GRADLET_CODE_ATTRIBUTE = 5,
    /**
     * A dimension, a tensor or the memory of a program is too large.
     */
    GRADLET_CODE_TOO_LARGE = 6,
    /**
     * A label or index in the data is out of range (numbers: instruction, position, value, exclusive upper limit).
     */
    GRADLET_CODE_INDEX_OUT_OF_RANGE = 7,
    /**
     * An integer was divided by zero (numbers: instruction, position).
     */
    GRADLET_CODE_DIVISION_BY_ZERO = 8,
    /**
     * An integer was raised to a negative power (numbers: instruction, position).
     */
    GRADLET_CODE_NEGATIVE_POWER = 9,
    /**
     * An assertion of the program is false (numbers: instruction, position).
     */
    GRADLET_CODE_ASSERTION = 10,
    /**
     * The bytes are not an artifact.
     */
    GRADLET_CODE_NOT_AN_ARTIFACT = 11,
    /**
     * The artifact has a format version that this library does not read (numbers: major, minor).
     */
    GRADLET_CODE_VERSION = 12,
    /**
     * The artifact is cut short (numbers: bytes needed, bytes present).
     */
    GRADLET_CODE_TRUNCATED = 13,
    /**
     * Memory is not aligned to 16 bytes. Functions of C report it as GRADLET_CODE_MISALIGNED_POINTER.
     */
    GRADLET_CODE_MISALIGNED = 14,
    /**
     * The artifact is damaged (numbers: stored checksum, computed checksum).
     */
    GRADLET_CODE_CHECKSUM = 15,
    /**
     * A record of the artifact breaks the format (numbers: section, record).
     */
    GRADLET_CODE_RECORD = 16,
    /**
     * An instruction of the artifact breaks a rule (numbers: instruction, rule).
     */
    GRADLET_CODE_INSTRUCTION = 17,
    /**
     * The list of kernels lacks one that the artifact needs (numbers: index in the artifact's table). gradlet_missing_kernel returns its
     * name.
     */
    GRADLET_CODE_MISSING_KERNEL = 18,
    /**
     * The artifact has no such signature, or it was not loaded.
     */
    GRADLET_CODE_UNKNOWN_SIGNATURE = 19,
    /**
     * The arena is too small (numbers: bytes needed, bytes present).
     */
    GRADLET_CODE_ARENA_TOO_SMALL = 20,
    /**
     * There is no input, output or variable at this index (numbers: index).
     */
    GRADLET_CODE_NO_SUCH_TENSOR = 21,
    /**
     * The tensor has another element type (numbers: index).
     */
    GRADLET_CODE_TENSOR_TYPE = 22,
    /**
     * The bytes are not a checkpoint.
     */
    GRADLET_CODE_NOT_A_CHECKPOINT = 23,
    /**
     * The checkpoint has a format version that this library does not read (numbers: major, minor).
     */
    GRADLET_CODE_CHECKPOINT_VERSION = 24,
    /**
     * The checkpoint belongs to another artifact (numbers: checksum of that artifact).
     */
    GRADLET_CODE_OTHER_ARTIFACT = 25,
    /**
     * The checkpoint is damaged (numbers: the variable, or UINT32_MAX if the damage is outside the values of the variables).
     */
    GRADLET_CODE_DAMAGED = 26,
    /**
     * The checkpoint is cut short.
     */
    GRADLET_CODE_CUT_SHORT = 27,
    /**
     * The checkpoint changes a variable that no loaded signature assigns, and which therefore has no RAM (numbers: variable).
     */
    GRADLET_CODE_IN_FLASH = 28,
    /**
     * A callback reported a failure.
     */
    GRADLET_CODE_IO = 29,
    /**
     * The flash cannot be divided into slots this way.
     */
    GRADLET_CODE_SLOTS = 30,
    /**
     * The checkpoint does not fit into a slot (numbers: bytes needed, bytes of a slot).
     */
    GRADLET_CODE_SLOT_TOO_SMALL = 31,
    /**
     * The flash does not hold what was written (numbers: slot).
     */
    GRADLET_CODE_WORN = 32,
    /**
     * gradlet broke one of its own rules. Please report how to reproduce this.
     */
    GRADLET_CODE_INTERNAL = 33,
    /**
     * An element is infinite or NaN (numbers: instruction, position).
     */
    GRADLET_CODE_NOT_FINITE = 34,
    /**
     * A variable that would be saved has an element that is infinite or NaN (numbers: variable).
     */
    GRADLET_CODE_VARIABLE_NOT_FINITE = 35,
    /**
     * The session is unfinished, because a run ended after it had changed a variable. A restore or a reset ends this state.
     */
    GRADLET_CODE_UNFINISHED = 36,
    /**
     * The tensor has another number of elements (numbers: index, elements of the tensor, elements given).
     */
    GRADLET_CODE_LENGTH = 37,
    /**
     * A run, load, save or restore in slices cannot go on: it was not begun, it is over, or something changed meanwhile.
     */
    GRADLET_CODE_INTERRUPTED = 38,
    /**
     * A pointer is null (numbers: argument, from 0 on).
     */
    GRADLET_CODE_NULL_POINTER = 128,
    /**
     * A pointer is not aligned (numbers: argument, required alignment).
     */
    GRADLET_CODE_MISALIGNED_POINTER = 129,
    /**
     * The memory of two arguments overlaps, or memory reaches past the end of the address space (numbers: argument, other argument).
     */
    GRADLET_CODE_OVERLAP = 130,
    /**
     * A struct is not initialised, was copied, or depends on one that is no longer what it was (numbers: argument).
     */
    GRADLET_CODE_NOT_INITIALIZED = 131,
    /**
     * A struct is in use by a call that has not returned. Callbacks and interrupts must not use it (numbers: argument).
     */
    GRADLET_CODE_IN_USE = 132,
    /**
     * A text is not UTF-8, or has more than 255 bytes (numbers: argument).
     */
    GRADLET_CODE_BAD_TEXT = 133,
    /**
     * A number is outside its range (numbers: argument).
     */
    GRADLET_CODE_BAD_NUMBER = 134,
    /**
     * A buffer is too small (numbers: argument, bytes needed, bytes present).
     */
    GRADLET_CODE_BUFFER_TOO_SMALL = 135,
} gradlet_code;

/**
 * The set of variables that a checkpoint contains.
 */
typedef enum gradlet_contents {
    /**
     * All variables.
     */
    GRADLET_CONTENTS_FULL = 0,
    /**
     * The variables whose values differ from the initial ones. Such a checkpoint is smaller.
     */
    GRADLET_CONTENTS_CHANGED = 1,
} gradlet_contents;

/**
 * The element types, by their numbers in artifacts.
 */
typedef enum gradlet_dtype {
    /**
     * `float`.
     */
    GRADLET_DTYPE_F32 = 1,
    /**
     * `double`.
     */
    GRADLET_DTYPE_F64 = 2,
    /**
     * IEEE 754 binary16.
     */
    GRADLET_DTYPE_F16 = 3,
    /**
     * bfloat16.
     */
    GRADLET_DTYPE_BF16 = 4,
    /**
     * `int8_t`.
     */
    GRADLET_DTYPE_I8 = 5,
    /**
     * `uint8_t`.
     */
    GRADLET_DTYPE_U8 = 6,
    /**
     * `int32_t`.
     */
    GRADLET_DTYPE_I32 = 7,
    /**
     * `int64_t`.
     */
    GRADLET_DTYPE_I64 = 8,
    /**
     * A byte: 0 is false, anything else is true.
     */
    GRADLET_DTYPE_BOOL = 9,
    /**
     * `int16_t`.
     */
    GRADLET_DTYPE_I16 = 10,
} gradlet_dtype;

/**
 * A kernel: code that computes an op for one element type. Its symbol is `gradlet_kernel_`, the name of the op, `_`, and the element type,
 * as in `gradlet_kernel_dense_F32`. `gradlet export --c` writes the list that an artifact needs.
 */
typedef struct gradlet_kernel gradlet_kernel;

/**
 * The outcome of a call. It is small, so functions return it by value.
 */
typedef struct gradlet_result {
    /**
     * The code: one of `enum gradlet_code`. It is 0 if the call succeeded.
     */
    uint32_t code;
    /**
     * Details of the error, as the code describes them, and otherwise 0.
     */
    uint32_t numbers[4];
} gradlet_result;

/**
 * A program: an artifact that was verified for some of its signatures. The struct stays where it is, and the artifact, the list of
 * kernels and the struct live as long as a session of the program.
 */
typedef struct gradlet_program {
    size_t words[GRADLET_PROGRAM_WORDS];
} gradlet_program;

/**
 * The sizes of the memory that a session needs, in bytes.
 */
typedef struct gradlet_sizes {
    /**
     * The whole arena: `scratch` and `kept`.
     */
    size_t arena;
    /**
     * The part that holds nothing between runs.
     */
    size_t scratch;
    /**
     * The part that holds the variables.
     */
    size_t kept;
} gradlet_sizes;

/**
 * A load in progress. The struct stays where it is.
 */
typedef struct gradlet_loading {
    size_t words[GRADLET_LOADING_WORDS];
} gradlet_loading;

/**
 * A session: a program with its memory, the arena. The struct stays where it is. While the session is used, C reads and writes the
 * arena only where a function has returned a pointer into it.
 */
typedef struct gradlet_session {
    size_t words[GRADLET_SESSION_WORDS];
} gradlet_session;

/**
 * Receives `count` bytes of text, which is not ended by a zero.
 */
typedef void (*gradlet_print)(void *context, const char *text, size_t count);

/**
 * The type of a tensor.
 */
typedef struct gradlet_type {
    /**
     * The element type: one of `enum gradlet_dtype`.
     */
    uint32_t dtype;
    /**
     * Number of dimensions.
     */
    uint32_t rank;
    /**
     * The dimensions, outermost first, then zeros.
     */
    uint32_t dims[8];
} gradlet_type;

/**
 * Takes up to `count` bytes. Returns how many it has taken, or a negative number if it failed. For a checkpoint it takes at least one; for
 * telemetry it does not wait, and may take none.
 */
typedef int32_t (*gradlet_write)(void *context, const uint8_t *bytes, size_t count);

/**
 * Stores up to `count` bytes at `bytes`. Returns how many it has stored, 0 at the end, or a negative number if it failed.
 */
typedef int32_t (*gradlet_read)(void *context, uint8_t *bytes, size_t count);

/**
 * Two or more slots in flash, which hold checkpoints in turn. The struct stays where it is.
 */
typedef struct gradlet_slots {
    size_t words[GRADLET_SLOTS_WORDS];
} gradlet_slots;

/**
 * A driver of NOR flash. Each function returns 0 if it succeeds, and receives `context`.
 */
typedef struct gradlet_flash {
    /**
     * The first argument of the functions.
     */
    void *context;
    /**
     * Reads `count` bytes at `offset`. Both are multiples of 64.
     */
    int32_t (*read)(void *context, uint32_t offset, uint8_t *bytes, size_t count);
    /**
     * Writes `count` bytes at `offset`, which are erased. Both are multiples of 64.
     */
    int32_t (*write)(void *context, uint32_t offset, const uint8_t *bytes, size_t count);
    /**
     * Erases the block at `offset`.
     */
    int32_t (*erase)(void *context, uint32_t offset);
    /**
     * Size of the flash in bytes.
     */
    uint32_t capacity;
    /**
     * Size of a block that is erased together, in bytes: a multiple of 64.
     */
    uint32_t block;
} gradlet_flash;

/**
 * A committed checkpoint in a slot.
 */
typedef struct gradlet_slot {
    /**
     * The sequence number. A higher number is newer.
     */
    uint32_t sequence;
    /**
     * Size of the checkpoint in bytes.
     */
    uint32_t bytes;
    /**
     * Length of the artifact that the checkpoint belongs to, or 0 if that is not known.
     */
    uint32_t artifact_bytes;
    /**
     * Checksum of that artifact.
     */
    uint32_t artifact_checksum;
    /**
     * True if the checkpoint is intact.
     */
    bool whole;
} gradlet_slot;

/**
 * A queue of telemetry frames, which `gradlet monitor` shows in TensorBoard. The struct stays where it is.
 */
typedef struct gradlet_telemetry {
    size_t words[GRADLET_TELEMETRY_WORDS];
} gradlet_telemetry;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the library. It must be GRADLET_VERSION, because the sizes of structs are in the header.
 */
uint32_t gradlet_version(void);

/**
 * Writes the text of an outcome to `text`, of `bytes` bytes, and ends it with a zero. A text that is too long is cut. Returns the length
 * of the whole text, without the zero. `text` may be null if `bytes` is 0.
 */
size_t gradlet_text(struct gradlet_result result, char *text, size_t bytes);

/**
 * Verifies the artifact of `bytes` bytes at `artifact`, which begins at a multiple of 16. `kernels` lists the kernels that it needs. Bit
 * `i` of `signatures` loads the signature with index `i`; a header of `gradlet export --c` has the bits of all of them, and the indices.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_program_load(struct gradlet_program *program,
                                           const uint8_t *artifact,
                                           size_t bytes,
                                           const struct gradlet_kernel *const *kernels,
                                           size_t kernel_count,
                                           uint32_t signatures);

/**
 * Stores the sizes of the memory that a session of `program` needs.
 */
GRADLET_CHECKED struct gradlet_result gradlet_program_sizes(const struct gradlet_program *program, struct gradlet_sizes *sizes);

/**
 * Stores the index of the loaded signature with the name `name`. Other functions take the index. A header of `gradlet export --c` has it
 * as a constant.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_program_signature(const struct gradlet_program *program,
                                                const char *name,
                                                uint32_t *signature);

/**
 * Writes the name of the op whose kernel a load lacked to `op`, of `bytes` bytes, and ends it with a zero. `kernel` is the number of
 * GRADLET_CODE_MISSING_KERNEL. Stores the element type, one of `enum gradlet_dtype`, in `dtype`.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_missing_kernel(const uint8_t *artifact,
                                             size_t artifact_bytes,
                                             uint32_t kernel,
                                             char *op,
                                             size_t bytes,
                                             uint32_t *dtype);

/**
 * Begins a load. The arguments are those of gradlet_program_load.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_loading_init(struct gradlet_loading *loading,
                                           const uint8_t *artifact,
                                           size_t bytes,
                                           const struct gradlet_kernel *const *kernels,
                                           size_t kernel_count);

/**
 * Goes on with a load for about `budget` instructions of a Cortex-M4. Stores in `done` whether only gradlet_loading_finish is left.
 */
GRADLET_CHECKED struct gradlet_result gradlet_loading_advance(struct gradlet_loading *loading, uint32_t budget, bool *done);

/**
 * Ends a load, and initialises its program. Bit `i` of `signatures` loads the signature with index `i`. The load is then over, also if the
 * artifact has an error.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_loading_finish(struct gradlet_loading *loading,
                                             struct gradlet_program *program,
                                             uint32_t signatures);

/**
 * Initialises a session of `program` in the arena of `bytes` bytes, which begins at a multiple of 16. Every variable gets its initial
 * value. gradlet_program_sizes and the header of `gradlet export --c` have the size.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_init(struct gradlet_session *session,
                                           const struct gradlet_program *program,
                                           uint8_t *arena,
                                           size_t bytes);

/**
 * Initialises a session in an arena that an earlier session of the same program and signatures has used, and keeps the values of the
 * variables. Fails with GRADLET_CODE_UNFINISHED if the arena holds no session, or one that was interrupted while it changed them:
 * gradlet_session_init then begins anew.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_resume(struct gradlet_session *session,
                                             const struct gradlet_program *program,
                                             uint8_t *arena,
                                             size_t bytes);

/**
 * Initialises a session like gradlet_session_init, with the arena in two parts. Models that run in turn can share `scratch`. Each has a
 * `kept` of its own, to which gradlet_session_resume_in returns at each switch. Inputs, outputs and a run in slices are lost when another
 * model uses `scratch`.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_init_in(struct gradlet_session *session,
                                              const struct gradlet_program *program,
                                              uint8_t *scratch,
                                              size_t scratch_bytes,
                                              uint8_t *kept,
                                              size_t kept_bytes);

/**
 * Initialises a session like gradlet_session_resume, with the arena in two parts. `kept` is that of the earlier session; `scratch` can
 * hold anything.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_resume_in(struct gradlet_session *session,
                                                const struct gradlet_program *program,
                                                uint8_t *scratch,
                                                size_t scratch_bytes,
                                                uint8_t *kept,
                                                size_t kept_bytes);

/**
 * Runs a signature on the inputs that were set. The index of the signature is in the header of `gradlet export --c`.
 */
GRADLET_CHECKED struct gradlet_result gradlet_session_run(struct gradlet_session *session, uint32_t signature);

/**
 * Runs a signature like gradlet_session_run, and passes what the program prints and summarises to `print`, in pieces. `print` receives
 * `context`. This links code that formats numbers.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_run_printing(struct gradlet_session *session,
                                                   uint32_t signature,
                                                   gradlet_print print,
                                                   void *context);

/**
 * Begins a run of a signature. gradlet_session_advance does the work, in slices. Until it is done, C sets no input and no variable,
 * although gradlet does not refuse it.
 */
GRADLET_CHECKED struct gradlet_result gradlet_session_begin(struct gradlet_session *session, uint32_t signature);

/**
 * Goes on with a run for about `budget` instructions of a Cortex-M4. Stores in `done` whether the run is done.
 */
GRADLET_CHECKED struct gradlet_result gradlet_session_advance(struct gradlet_session *session, uint32_t budget, bool *done);

/**
 * Abandons the run in progress, if there is one.
 */
GRADLET_CHECKED struct gradlet_result gradlet_session_abort(struct gradlet_session *session);

/**
 * Resets every variable to its initial value.
 */
GRADLET_CHECKED struct gradlet_result gradlet_session_reset(struct gradlet_session *session);

/**
 * Stores the number of variables.
 */
GRADLET_CHECKED struct gradlet_result gradlet_session_variable_count(struct gradlet_session *session, uint32_t *count);

/**
 * Stores the type of input `index` of a signature.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_input_type(struct gradlet_session *session,
                                                 uint32_t signature,
                                                 uint32_t index,
                                                 struct gradlet_type *found);

/**
 * Stores the type of output `index` of a signature.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_output_type(struct gradlet_session *session,
                                                  uint32_t signature,
                                                  uint32_t index,
                                                  struct gradlet_type *found);

/**
 * Stores the type of variable `index`. Variables have the order of the artifact.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_variable_type(struct gradlet_session *session,
                                                    uint32_t index,
                                                    struct gradlet_type *found);

/**
 * Sets input `index` of a signature to `count` values of the element type `dtype`, one of `enum gradlet_dtype`. A run may use the memory
 * of an input for something else, so C sets every input before every run.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_set_input(struct gradlet_session *session,
                                                uint32_t signature,
                                                uint32_t index,
                                                uint32_t dtype,
                                                const void *values,
                                                size_t count);

/**
 * Stores a pointer to input `index` of a signature, through which C sets it, and the number of its elements. The pointer is valid until
 * the next run begins. `values` is the address of a `void *`, which C then assigns to a pointer to elements: the address of a `float *`,
 * cast to `void **`, would break C's rules of aliasing. The same is true of the functions below.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_input(struct gradlet_session *session,
                                            uint32_t signature,
                                            uint32_t index,
                                            uint32_t dtype,
                                            void **values,
                                            size_t *count);

/**
 * Stores a pointer to output `index` of a signature, as the last run has left it, and the number of its elements. The values are valid
 * until an input is set or the next run begins. Before the first run they are arbitrary.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_output(struct gradlet_session *session,
                                             uint32_t signature,
                                             uint32_t index,
                                             uint32_t dtype,
                                             const void **values,
                                             size_t *count);

/**
 * Sets variable `index` to `count` values. It must be in RAM, as a variable is that a loaded signature assigns.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_set_variable(struct gradlet_session *session,
                                                   uint32_t index,
                                                   uint32_t dtype,
                                                   const void *values,
                                                   size_t count);

/**
 * Stores a pointer to variable `index`, and the number of its elements. The values are valid until a run begins or a variable is set.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_variable(struct gradlet_session *session,
                                               uint32_t index,
                                               uint32_t dtype,
                                               const void **values,
                                               size_t *count);

/**
 * Saves the variables of a session through `write`, which receives `context`. `contents` is one of `enum gradlet_contents`.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_save(struct gradlet_session *session,
                                           uint32_t contents,
                                           gradlet_write write,
                                           void *context);

/**
 * Stores the number of bytes that gradlet_session_save writes.
 */
GRADLET_CHECKED struct gradlet_result gradlet_session_checkpoint_bytes(struct gradlet_session *session, uint32_t contents, uint32_t *bytes);

/**
 * Sets the variables of a session to those of a checkpoint, which it reads through `read`. A checkpoint of another artifact changes
 * nothing. Any error after the header, also one of `read`, resets all variables to their initial values. If the checkpoint can be read
 * twice, gradlet_session_verify finds errors first.
 */
GRADLET_CHECKED struct gradlet_result gradlet_session_restore(struct gradlet_session *session, gradlet_read read, void *context);

/**
 * Reads a checkpoint through `read` and fails like gradlet_session_restore, but changes nothing.
 */
GRADLET_CHECKED struct gradlet_result gradlet_session_verify(struct gradlet_session *session, gradlet_read read, void *context);

/**
 * Sets the variables of a session to those of a checkpoint of another artifact, `old`, as far as names and types are the same. The others
 * get their initial values. A model that was replaced thus keeps what it has learned. `old` needs no kernels and no signatures. `read`
 * must not load `old` anew.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_session_restore_other(struct gradlet_session *session,
                                                    const struct gradlet_program *old,
                                                    gradlet_read read,
                                                    void *context);

/**
 * Initialises `count` slots in the bytes of a flash from `start` up to `end`. `start` begins a block, and each slot gets the same number
 * of whole blocks. Nothing is read or erased. The driver is copied.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_slots_init(struct gradlet_slots *slots,
                                         const struct gradlet_flash *flash,
                                         uint32_t start,
                                         uint32_t end,
                                         uint32_t count);

/**
 * Saves the variables of a session in another slot than the newest checkpoint's. Stores the number of the new checkpoint in `sequence`. If
 * power fails at any time, a restore finds either this checkpoint or the one before. `contents` is one of `enum gradlet_contents`.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_slots_save(struct gradlet_slots *slots,
                                         struct gradlet_session *session,
                                         uint32_t contents,
                                         uint32_t *sequence);

/**
 * Begins a save. gradlet_slots_advance_save does the work, in slices.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_slots_begin_save(struct gradlet_slots *slots,
                                               struct gradlet_session *session,
                                               uint32_t contents);

/**
 * Goes on with a save for about `budget` instructions of a Cortex-M4. Stores the number of the checkpoint in `sequence` when the save is
 * done, and 0 before.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_slots_advance_save(struct gradlet_slots *slots,
                                                 struct gradlet_session *session,
                                                 uint32_t budget,
                                                 uint32_t *sequence);

/**
 * Sets the variables of a session to the newest complete checkpoint of its artifact with a number up to `most`; UINT32_MAX allows every
 * number. Stores the checkpoint's number in `sequence`, or 0 if there is none; the session is then unchanged.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_slots_restore(struct gradlet_slots *slots,
                                            struct gradlet_session *session,
                                            uint32_t most,
                                            uint32_t *sequence);

/**
 * Begins a restore of the newest complete checkpoint with a number up to `most`. gradlet_slots_advance_restore does the work, in slices.
 */
GRADLET_CHECKED struct gradlet_result gradlet_slots_begin_restore(struct gradlet_slots *slots, uint32_t most);

/**
 * Goes on with a restore for about `budget` instructions of a Cortex-M4. Stores in `done` whether the restore is done, and then in
 * `sequence` what gradlet_slots_restore stores.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_slots_advance_restore(struct gradlet_slots *slots,
                                                    struct gradlet_session *session,
                                                    uint32_t budget,
                                                    bool *done,
                                                    uint32_t *sequence);

/**
 * Restores the newest complete checkpoint of another artifact, `old`, as gradlet_session_restore_other does. Stores the checkpoint's
 * number in `sequence`, or 0 if there is none.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_slots_restore_other(struct gradlet_slots *slots,
                                                  struct gradlet_session *session,
                                                  const struct gradlet_program *old,
                                                  uint32_t *sequence);

/**
 * Stores the committed slots in `list`, which has room for `room`, in the order of the flash, and their number in `count`. If there are
 * more, fails with GRADLET_CODE_BUFFER_TOO_SMALL.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_slots_list(struct gradlet_slots *slots,
                                         struct gradlet_slot *list,
                                         size_t room,
                                         size_t *count);

/**
 * Erases the newest complete checkpoint of the session's artifact, so that a restore finds the one before. Stores its number in
 * `sequence`, or 0 if there is none.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_slots_discard_newest(struct gradlet_slots *slots,
                                                   struct gradlet_session *session,
                                                   uint32_t *sequence);

/**
 * Initialises a queue of frames in `buffer`, of `bytes` bytes. It should hold all frames that are sent between two polls. `write` takes as
 * many of its bytes as it can without waiting, also none, and returns how many, or a negative number if it failed. It receives `context`.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_telemetry_init(struct gradlet_telemetry *telemetry,
                                             gradlet_write write,
                                             void *context,
                                             uint8_t *buffer,
                                             size_t bytes);

/**
 * Sends a frame that introduces the sender. It should be the first one, and be repeated now and then. `clock` names a unit of time, of
 * which `hz` make a second. `program` may be null; otherwise, the reader shows the names of its ops.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_telemetry_hello(struct gradlet_telemetry *telemetry,
                                              const char *sender,
                                              const char *clock,
                                              uint32_t hz,
                                              const struct gradlet_program *program);

/**
 * Sends a number for a step, such as a loss.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_telemetry_scalar(struct gradlet_telemetry *telemetry,
                                               const char *tag,
                                               uint32_t step,
                                               float value);

/**
 * Sends a text for a step.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_telemetry_text(struct gradlet_telemetry *telemetry,
                                             const char *tag,
                                             uint32_t step,
                                             const char *text);

/**
 * Sends the progress of an epoch: `step` of `of` steps are done.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_telemetry_progress(struct gradlet_telemetry *telemetry,
                                                 uint32_t step,
                                                 uint32_t of,
                                                 uint32_t epoch);

/**
 * Sends the statistics of variable `index` of a session: smallest and largest element, mean, variance.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_telemetry_variable(struct gradlet_telemetry *telemetry,
                                                 const char *tag,
                                                 uint32_t step,
                                                 struct gradlet_session *session,
                                                 uint32_t index);

/**
 * Runs a signature like gradlet_session_run, and sends what the program prints and summarises, with the tag `print` or the tags of the
 * summaries. `step` is the step of those that have none. This links code that formats numbers.
 */
GRADLET_CHECKED
struct gradlet_result gradlet_telemetry_run(struct gradlet_telemetry *telemetry,
                                            struct gradlet_session *session,
                                            uint32_t signature,
                                            uint32_t step);

/**
 * Passes waiting bytes to the callback, until it takes none.
 */
GRADLET_CHECKED struct gradlet_result gradlet_telemetry_poll(struct gradlet_telemetry *telemetry);

/**
 * Stores whether the callback has taken all bytes in `empty`, and the number of frames that had no room in `dropped`.
 */
GRADLET_CHECKED struct gradlet_result gradlet_telemetry_state(struct gradlet_telemetry *telemetry, bool *empty, uint32_t *dropped);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GRADLET_H */
