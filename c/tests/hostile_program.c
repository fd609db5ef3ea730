/* Hostile calls: programs and sessions. */

#include "hostile.h"

#define BYTES MODEL_ARTIFACT_BYTES
#define KERNELS model_kernels, MODEL_KERNEL_COUNT

static void artifacts(void)
{
    static gradlet_program other;
    static gradlet_loading loading;
    uint8_t *damaged = exactly(BYTES);
    /* Each length of the first part, and one byte less than all. */
    for (size_t bytes = 0; bytes < BYTES; bytes += bytes < 300 ? 1 : 500) {
        uint8_t *part = exactly(bytes);
        memcpy(part, model_artifact, bytes);
        EXPECT_ERROR(gradlet_program_load(&other, part, bytes, KERNELS, MODEL_SIGNATURES));
        EXPECT_ERROR(gradlet_loading_init(&loading, part, bytes, KERNELS));
    }
    EXPECT(TRUNCATED, gradlet_program_load(&other, model_artifact, BYTES - 1, KERNELS, MODEL_SIGNATURES));
    EXPECT(OK, gradlet_program_load(&other, model_artifact, BYTES, KERNELS, MODEL_SIGNATURES));
    /* Damaged bytes, also those behind the checksum's back. */
    for (size_t at = 0; at < BYTES; at += at < 120 ? 1 : 97) {
        memcpy(damaged, model_artifact, BYTES);
        damaged[at] ^= 0x41;
        EXPECT_ERROR(gradlet_program_load(&other, damaged, BYTES, KERNELS, MODEL_SIGNATURES));
    }
    gradlet_sizes sizes;
    EXPECT(NOT_INITIALIZED, gradlet_program_sizes(&other, &sizes));
}

static void loads(void)
{
    static gradlet_program other;
    uint8_t *copy = exactly(BYTES + 16);
    memcpy(copy, model_artifact, BYTES);
    EXPECT(NULL_POINTER, gradlet_program_load(NULL, copy, BYTES, KERNELS, 1));
    EXPECT(MISALIGNED_POINTER, gradlet_program_load(ODD(gradlet_program, &other), copy, BYTES, KERNELS, 1));
    EXPECT(NULL_POINTER, gradlet_program_load(&other, NULL, BYTES, KERNELS, 1));
    for (size_t at = 1; at < 16; at++) {
        EXPECT(MISALIGNED_POINTER, gradlet_program_load(&other, copy + at, BYTES, KERNELS, 1));
    }
    EXPECT(OVERLAP, gradlet_program_load(&other, copy, SIZE_MAX, KERNELS, 1));
    EXPECT(OVERLAP, gradlet_program_load((gradlet_program *)(void *)copy, copy, BYTES, KERNELS, 1));
    EXPECT(OVERLAP, gradlet_program_load((gradlet_program *)(void *)(copy + 1024), copy, BYTES, KERNELS, 1));
    HOLDS(memcmp(copy, model_artifact, BYTES) == 0);
    EXPECT(TRUNCATED, gradlet_program_load(&other, NULL, 0, NULL, 0, 0));
    EXPECT(TRUNCATED, gradlet_program_load(&other, copy, 0, NULL, 0, 0));
    EXPECT(NULL_POINTER, gradlet_program_load(&other, copy, BYTES, NULL, 1, 1));
    EXPECT(MISALIGNED_POINTER, gradlet_program_load(&other, copy, BYTES, ODD(const gradlet_kernel *const, model_kernels), 1, 1));
    EXPECT(OVERLAP, gradlet_program_load(&other, copy, BYTES, model_kernels, SIZE_MAX, 1));
    EXPECT(OVERLAP, gradlet_program_load(&other, copy, BYTES, (const gradlet_kernel *const *)(void *)&other, 1, 1));
    const gradlet_kernel *kernels[MODEL_KERNEL_COUNT];
    for (size_t index = 0; index < MODEL_KERNEL_COUNT; index++) {
        memcpy(kernels, model_kernels, sizeof kernels);
        kernels[index] = NULL;
        EXPECT(NULL_POINTER, gradlet_program_load(&other, copy, BYTES, kernels, MODEL_KERNEL_COUNT, 3));
        kernels[index] = ODD(const gradlet_kernel, model_kernels[index]);
        EXPECT(MISALIGNED_POINTER, gradlet_program_load(&other, copy, BYTES, kernels, MODEL_KERNEL_COUNT, 3));
        EXPECT(MISSING_KERNEL, gradlet_program_load(&other, copy, BYTES, model_kernels, index, 3));
    }
    EXPECT(UNKNOWN_SIGNATURE, gradlet_program_load(&other, copy, BYTES, KERNELS, 4));
    EXPECT(UNKNOWN_SIGNATURE, gradlet_program_load(&other, copy, BYTES, KERNELS, UINT32_MAX));
    EXPECT(OK, gradlet_program_load(&other, copy, BYTES, NULL, 0, 0));
    /* A model without signatures and kernels. */
    EXPECT(OK, gradlet_program_load(&other, empty_artifact, sizeof empty_artifact, empty_kernels, EMPTY_KERNEL_COUNT, EMPTY_SIGNATURES));
    EXPECT(UNKNOWN_SIGNATURE, gradlet_program_load(&other, empty_artifact, sizeof empty_artifact, NULL, 0, 1));

    gradlet_result result = gradlet_program_load(&other, copy, BYTES, NULL, 0, 3);
    EXPECT(MISSING_KERNEL, gradlet_program_load(&other, copy, BYTES, NULL, 0, 3));
    char op[32];
    uint32_t dtype;
    EXPECT(OK, gradlet_missing_kernel(copy, BYTES, result.numbers[0], op, sizeof op, &dtype));
    EXPECT(NULL_POINTER, gradlet_missing_kernel(NULL, BYTES, 0, op, sizeof op, &dtype));
    EXPECT(MISALIGNED_POINTER, gradlet_missing_kernel(copy + 1, BYTES, 0, op, sizeof op, &dtype));
    EXPECT(BAD_NUMBER, gradlet_missing_kernel(copy, 111, 0, op, sizeof op, &dtype));
    EXPECT(BAD_NUMBER, gradlet_missing_kernel(copy, BYTES, MODEL_KERNEL_COUNT, op, sizeof op, &dtype));
    EXPECT(NULL_POINTER, gradlet_missing_kernel(copy, BYTES, 0, NULL, sizeof op, &dtype));
    EXPECT(BUFFER_TOO_SMALL, gradlet_missing_kernel(copy, BYTES, 0, op, 0, &dtype));
    EXPECT(BUFFER_TOO_SMALL, gradlet_missing_kernel(copy, BYTES, 0, op, strlen(op), &dtype));
    EXPECT(OK, gradlet_missing_kernel(copy, BYTES, 0, op, strlen(op) + 1, &dtype));
    EXPECT(OVERLAP, gradlet_missing_kernel(copy, BYTES, 0, (char *)copy, 32, &dtype));
    OUT(uint32_t, copy, copy + 64, gradlet_missing_kernel(copy, BYTES, 0, op, sizeof op, out));
}

/* Ends a load with a program that overlaps the artifact, the list of kernels or the load, at each word. Nothing changes. */
static void finish_overlapping(uint8_t *artifact)
{
    static union {
        gradlet_loading loading;
        size_t words[GRADLET_LOADING_WORDS + GRADLET_PROGRAM_WORDS];
    } both, before;
    static gradlet_program whole;
    const gradlet_kernel **kernels = exactly(sizeof model_kernels);
    memcpy(kernels, model_kernels, sizeof model_kernels);
    EXPECT(OK, gradlet_loading_init(&both.loading, artifact, BYTES, kernels, MODEL_KERNEL_COUNT));
    before = both;
    for (size_t at = 0; at < GRADLET_LOADING_WORDS; at++) {
        EXPECT(OVERLAP, gradlet_loading_finish(&both.loading, (gradlet_program *)(void *)(both.words + at), 3));
        HOLDS(memcmp(&both, &before, sizeof both) == 0);
    }
    for (size_t at = 0; at < BYTES; at += sizeof(size_t)) {
        EXPECT(OVERLAP, gradlet_loading_finish(&both.loading, (gradlet_program *)(void *)(artifact + at), 3));
    }
    for (size_t index = 0; index < MODEL_KERNEL_COUNT; index++) {
        EXPECT(OVERLAP, gradlet_loading_finish(&both.loading, (gradlet_program *)(void *)(kernels + index), 3));
    }
    HOLDS(memcmp(artifact, model_artifact, BYTES) == 0);
    HOLDS(memcmp(kernels, model_kernels, sizeof model_kernels) == 0);
    EXPECT(OK, gradlet_loading_finish(&both.loading, &whole, 3));
}

static void slices(void)
{
    static gradlet_program other;
    static gradlet_loading loading;
    uint8_t *copy = exactly(BYTES);
    memcpy(copy, model_artifact, BYTES);
    bool done = false;
    EXPECT(NULL_POINTER, gradlet_loading_init(NULL, copy, BYTES, KERNELS));
    EXPECT(MISALIGNED_POINTER, gradlet_loading_init(ODD(gradlet_loading, &loading), copy, BYTES, KERNELS));
    EXPECT(NULL_POINTER, gradlet_loading_init(&loading, NULL, BYTES, KERNELS));
    EXPECT(MISALIGNED_POINTER, gradlet_loading_init(&loading, copy + 4, BYTES, KERNELS));
    EXPECT(TRUNCATED, gradlet_loading_init(&loading, copy, BYTES - 1, KERNELS));
    EXPECT(NULL_POINTER, gradlet_loading_init(&loading, copy, BYTES, NULL, 1));
    EXPECT(OVERLAP, gradlet_loading_init((gradlet_loading *)(void *)copy, copy, BYTES, KERNELS));
    HOLDS(memcmp(copy, model_artifact, BYTES) == 0);
    EXPECT(NOT_INITIALIZED, gradlet_loading_advance(&loading, 1000, &done));
    EXPECT(NOT_INITIALIZED, gradlet_loading_finish(&loading, &other, 1));
    EXPECT(OK, gradlet_loading_init(&loading, copy, BYTES, KERNELS));
    OBJECT(gradlet_loading, &loading, gradlet_loading_advance(it, 1000, &done));
    OBJECT(gradlet_loading, &loading, gradlet_loading_finish(it, &other, 1));
    OUT(bool, copy, &loading, gradlet_loading_advance(&loading, 1000, out));
    EXPECT(NULL_POINTER, gradlet_loading_finish(&loading, NULL, 1));
    finish_overlapping(copy);
    EXPECT(UNKNOWN_SIGNATURE, gradlet_loading_finish(&loading, &other, 8));
    EXPECT(OK, gradlet_loading_init(&loading, copy, BYTES, KERNELS));
    while (!done) {
        EXPECT(OK, gradlet_loading_advance(&loading, 20000, &done));
    }
    EXPECT(OK, gradlet_loading_finish(&loading, &other, 3));
    EXPECT(NOT_INITIALIZED, gradlet_loading_finish(&loading, &other, 3));
    /* The artifact changes while it is loaded. */
    EXPECT(OK, gradlet_loading_init(&loading, copy, BYTES, KERNELS));
    copy[BYTES - 1] ^= 1;
    EXPECT(CHECKSUM, gradlet_loading_finish(&loading, &other, 3));
}

void programs(void)
{
    gradlet_sizes sizes;
    uint32_t signature;
    EXPECT(NOT_INITIALIZED, gradlet_program_sizes(&program, &sizes));
    EXPECT(NOT_INITIALIZED, gradlet_session_init(&session, &program, arena, MODEL_ARENA_BYTES));
    artifacts();
    loads();
    slices();
    EXPECT(OK, gradlet_program_load(&program, model_artifact, BYTES, KERNELS, MODEL_SIGNATURES));
    OBJECT(gradlet_program, &program, gradlet_program_sizes(it, &sizes));
    OUT(gradlet_sizes, &program, (char *)&program + 8, gradlet_program_sizes(&program, out));
    OBJECT(gradlet_program, &program, gradlet_program_signature(it, "train", &signature));
    TEXT(gradlet_program_signature(&program, text, &signature));
    OUT(uint32_t, &program, (char *)&program + 4, gradlet_program_signature(&program, "train", out));
    EXPECT(UNKNOWN_SIGNATURE, gradlet_program_signature(&program, "", &signature));
    EXPECT(UNKNOWN_SIGNATURE, gradlet_program_signature(&program, "trai", &signature));
    EXPECT(UNKNOWN_SIGNATURE, gradlet_program_signature(&program, "trains", &signature));
    EXPECT(OK, gradlet_program_signature(&program, "train", &signature));
}


/* An arena with the list of kernels in it, in either part. */
static void around_kernels(void)
{
    static gradlet_program listed;
    static gradlet_session other;
    const size_t all = MODEL_ARENA_BYTES, scratch = MODEL_SCRATCH_BYTES, bytes = sizeof model_kernels;
    uint8_t *memory = exactly(all), *kept = exactly(MODEL_KEPT_BYTES);
    const size_t places[] = {0, 64, scratch, (all - bytes) / 16 * 16};
    for (size_t index = 0; index < sizeof places / sizeof *places; index++) {
        const gradlet_kernel *const *kernels = (const gradlet_kernel *const *)(void *)(memory + places[index]);
        memcpy(memory + places[index], model_kernels, bytes);
        EXPECT(OK, gradlet_program_load(&listed, model_artifact, BYTES, kernels, MODEL_KERNEL_COUNT, MODEL_SIGNATURES));
        EXPECT(OVERLAP, gradlet_session_init(&other, &listed, memory, all));
        EXPECT(OVERLAP, gradlet_session_resume(&other, &listed, memory, all));
        EXPECT(OVERLAP, gradlet_session_init_in(&other, &listed, memory, all, kept, MODEL_KEPT_BYTES));
        EXPECT(OVERLAP, gradlet_session_init_in(&other, &listed, kept, MODEL_KEPT_BYTES, memory, all));
        EXPECT(OVERLAP, gradlet_session_init((gradlet_session *)(void *)(memory + places[index]), &listed, kept, MODEL_KEPT_BYTES));
        HOLDS(memcmp(memory + places[index], model_kernels, bytes) == 0);
    }
}

/* Two models, one after the other, in one buffer and one struct. The session of the first one is over. */
static void replaced(void)
{
    static gradlet_program changing;
    static gradlet_session first;
    const size_t length = sizeof other_artifact > BYTES ? sizeof other_artifact : BYTES;
    uint8_t *buffer = exactly(length), *memory = exactly(MODEL_ARENA_BYTES);
    memcpy(buffer, model_artifact, BYTES);
    EXPECT(OK, gradlet_program_load(&changing, buffer, length, KERNELS, 1));
    EXPECT(OK, gradlet_session_init(&first, &changing, memory, MODEL_ARENA_BYTES));
    EXPECT(OK, gradlet_session_run(&first, 0));
    memcpy(buffer, other_artifact, sizeof other_artifact);
    EXPECT(OK, gradlet_program_load(&changing, buffer, length, other_kernels, OTHER_KERNEL_COUNT, 1));
    EXPECT(NOT_INITIALIZED, gradlet_session_run(&first, 0));
    memcpy(buffer, model_artifact, BYTES);
    EXPECT(OK, gradlet_program_load(&changing, buffer, length, KERNELS, 1));
    EXPECT(OK, gradlet_session_run(&first, 0));
}

static void begins(void)
{
    static gradlet_session other;
    const size_t all = MODEL_ARENA_BYTES, scratch = MODEL_SCRATCH_BYTES, kept = MODEL_KEPT_BYTES;
    uint8_t *memory = exactly(all), *first = exactly(scratch), *second = exactly(kept);
    gradlet_result (*const whole[2])(gradlet_session *, const gradlet_program *, uint8_t *, size_t) = {gradlet_session_init,
                                                                                                  gradlet_session_resume};
    EXPECT(UNFINISHED, gradlet_session_resume(&other, &program, memory, all));
    EXPECT(UNFINISHED, gradlet_session_resume_in(&other, &program, first, scratch, second, kept));
    for (int index = 0; index < 2; index++) {
        gradlet_result (*gradlet_session_begins)(gradlet_session *, const gradlet_program *, uint8_t *, size_t) = whole[index];
        EXPECT(NULL_POINTER, gradlet_session_begins(NULL, &program, memory, all));
        EXPECT(MISALIGNED_POINTER, gradlet_session_begins(ODD(gradlet_session, &other), &program, memory, all));
        OBJECT(gradlet_program, &program, gradlet_session_begins(&other, it, memory, all));
        EXPECT(NULL_POINTER, gradlet_session_begins(&other, &program, NULL, all));
        for (size_t at = 1; at < 16; at++) {
            EXPECT(MISALIGNED_POINTER, gradlet_session_begins(&other, &program, memory + at, all));
        }
        EXPECT(ARENA_TOO_SMALL, gradlet_session_begins(&other, &program, memory, all - 1));
        EXPECT(ARENA_TOO_SMALL, gradlet_session_begins(&other, &program, memory, 0));
        EXPECT(ARENA_TOO_SMALL, gradlet_session_begins(&other, &program, NULL, 0));
        EXPECT(OVERLAP, gradlet_session_begins(&other, &program, memory, SIZE_MAX));
        EXPECT(OVERLAP, gradlet_session_begins(&other, &program, memory, SIZE_MAX / 2 + 1));
        EXPECT(OVERLAP, gradlet_session_begins((gradlet_session *)(void *)memory, &program, memory, all));
        EXPECT(OVERLAP, gradlet_session_begins(&other, &program, (uint8_t *)(uintptr_t)model_artifact, all));
        uint8_t *around = (uint8_t *)((uintptr_t)&program & ~(uintptr_t)15);
        EXPECT(OVERLAP, gradlet_session_begins(&other, &program, around, all));
        EXPECT(OVERLAP, gradlet_session_begins((gradlet_session *)(void *)&program, &program, memory, all));
        EXPECT(NOT_INITIALIZED, gradlet_session_run(&other, MODEL_TRAIN));
    }
    gradlet_result (*const parts[2])(gradlet_session *, const gradlet_program *, uint8_t *, size_t, uint8_t *, size_t) = {
        gradlet_session_init_in, gradlet_session_resume_in};
    for (int index = 0; index < 2; index++) {
        gradlet_result (*gradlet_session_begins_in)(gradlet_session *, const gradlet_program *, uint8_t *, size_t, uint8_t *, size_t) =
            parts[index];
        EXPECT(NULL_POINTER, gradlet_session_begins_in(NULL, &program, first, scratch, second, kept));
        EXPECT(MISALIGNED_POINTER, gradlet_session_begins_in(ODD(gradlet_session, &other), &program, first, scratch, second, kept));
        OBJECT(gradlet_program, &program, gradlet_session_begins_in(&other, it, first, scratch, second, kept));
        EXPECT(NULL_POINTER, gradlet_session_begins_in(&other, &program, NULL, scratch, second, kept));
        EXPECT(NULL_POINTER, gradlet_session_begins_in(&other, &program, first, scratch, NULL, kept));
        EXPECT(MISALIGNED_POINTER, gradlet_session_begins_in(&other, &program, first + 8, scratch, second, kept));
        EXPECT(MISALIGNED_POINTER, gradlet_session_begins_in(&other, &program, first, scratch, second + 4, kept));
        EXPECT(ARENA_TOO_SMALL, gradlet_session_begins_in(&other, &program, first, scratch - 1, second, kept));
        EXPECT(ARENA_TOO_SMALL, gradlet_session_begins_in(&other, &program, first, scratch, second, kept - 1));
        EXPECT(OVERLAP, gradlet_session_begins_in(&other, &program, memory, scratch, memory, kept));
        EXPECT(OVERLAP, gradlet_session_begins_in(&other, &program, memory, scratch + 1, memory + scratch, kept));
        EXPECT(OVERLAP, gradlet_session_begins_in((gradlet_session *)(void *)second, &program, first, scratch, second, kept));
    }
    /* The functions by their names, for the list of them. */
    EXPECT(ARENA_TOO_SMALL, gradlet_session_init(&other, &program, memory, all - 1));
    EXPECT(ARENA_TOO_SMALL, gradlet_session_init_in(&other, &program, first, scratch, second, kept - 1));
    EXPECT(OK, gradlet_session_init_in(&other, &program, first, scratch, second, kept));
    EXPECT(OK, gradlet_session_resume_in(&other, &program, first, scratch, second, kept));
    EXPECT(OK, gradlet_session_init(&other, &program, memory, all));
    EXPECT(OK, gradlet_session_resume(&other, &program, memory, all));

    /* A program that was loaded with other signatures, or was replaced, ends its sessions. */
    static gradlet_program changing;
    EXPECT(OK, gradlet_program_load(&changing, model_artifact, BYTES, KERNELS, MODEL_SIGNATURES));
    EXPECT(OK, gradlet_session_init(&other, &changing, memory, all));
    EXPECT(OK, gradlet_program_load(&changing, model_artifact, BYTES, KERNELS, 1u << MODEL_INFER));
    EXPECT(NOT_INITIALIZED, gradlet_session_run(&other, MODEL_INFER));
    EXPECT(OK, gradlet_session_init(&other, &changing, memory, all));
    EXPECT(UNKNOWN_SIGNATURE, gradlet_session_run(&other, MODEL_TRAIN));
    EXPECT(TRUNCATED, gradlet_program_load(&changing, model_artifact, BYTES - 1, KERNELS, MODEL_SIGNATURES));
    EXPECT(NOT_INITIALIZED, gradlet_session_reset(&other));
}

static void print(void *context, const char *text, size_t count)
{
    (void)text;
    *(size_t *)context += count;
}

void sessions(void)
{
    static const uint32_t unknown[] = {2, 31, 32, 33, UINT32_MAX};
    size_t printed = 0;
    bool done;
    EXPECT(NOT_INITIALIZED, gradlet_session_run(&session, MODEL_TRAIN));
    begins();
    around_kernels();
    replaced();
    EXPECT(OK, gradlet_session_init(&session, &program, arena, MODEL_ARENA_BYTES));
    OBJECT(gradlet_session, &session, gradlet_session_run(it, MODEL_INFER));
    OBJECT(gradlet_session, &session, gradlet_session_run_printing(it, MODEL_INFER, print, &printed));
    OBJECT(gradlet_session, &session, gradlet_session_begin(it, MODEL_INFER));
    OBJECT(gradlet_session, &session, gradlet_session_advance(it, 1000, &done));
    OBJECT(gradlet_session, &session, gradlet_session_abort(it));
    OBJECT(gradlet_session, &session, gradlet_session_reset(it));
    EXPECT(NULL_POINTER, gradlet_session_run_printing(&session, MODEL_INFER, NULL, &printed));
    EXPECT(OK, gradlet_session_run_printing(&session, MODEL_INFER, print, &printed));
    OUT(bool, arena, &session, gradlet_session_advance(&session, 1000, out));
    EXPECT(OVERLAP, gradlet_session_advance(&session, 1000, (bool *)(arena + MODEL_ARENA_BYTES - 1)));
    for (size_t index = 0; index < sizeof unknown / sizeof *unknown; index++) {
        EXPECT(UNKNOWN_SIGNATURE, gradlet_session_run(&session, unknown[index]));
        EXPECT(UNKNOWN_SIGNATURE, gradlet_session_run_printing(&session, unknown[index], print, &printed));
        EXPECT(UNKNOWN_SIGNATURE, gradlet_session_begin(&session, unknown[index]));
    }
    EXPECT(INTERRUPTED, gradlet_session_advance(&session, 1000, &done));
    EXPECT(OK, gradlet_session_begin(&session, MODEL_TRAIN));
    EXPECT(OK, gradlet_session_abort(&session));
    EXPECT(INTERRUPTED, gradlet_session_advance(&session, 1000, &done));
    /* A label out of range is an error that names its place. */
    int32_t label = 10;
    float x[MODEL_TRAIN_INPUT_X_ELEMENTS] = {0};
    EXPECT(OK, gradlet_session_set_input(&session, MODEL_TRAIN, 0, GRADLET_DTYPE_F32, x, MODEL_TRAIN_INPUT_X_ELEMENTS));
    EXPECT(OK, gradlet_session_set_input(&session, MODEL_TRAIN, 1, GRADLET_DTYPE_I32, &label, 1));
    EXPECT(INDEX_OUT_OF_RANGE, gradlet_session_run(&session, MODEL_TRAIN));
    /* In slices, and abandoned in the middle. */
    EXPECT(OK, gradlet_session_reset(&session));
    train(0);
    EXPECT(OK, gradlet_session_begin(&session, MODEL_TRAIN));
    for (done = false; !done;) {
        EXPECT(OK, gradlet_session_advance(&session, 1, &done));
    }
}
