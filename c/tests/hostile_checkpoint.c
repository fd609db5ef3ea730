/* Hostile calls: checkpoints and slots, with callbacks that fail, lie, and call back. */

#include "hostile.h"

#define FULL GRADLET_CONTENTS_FULL
#define CHANGED GRADLET_CONTENTS_CHANGED

/* A file in memory, with the length after which its callbacks fail. */
struct file {
    uint8_t bytes[16384];
    size_t length, at, limit;
    /* What a callback answers instead of failing. */
    int32_t lie;
};
static struct file file;

static int32_t write_file(void *context, const uint8_t *bytes, size_t count)
{
    struct file *to = context;
    if (to->length + count > to->limit) {
        return to->lie;
    }
    memcpy(to->bytes + to->length, bytes, count);
    to->length += count;
    return (int32_t)count;
}

static int32_t read_file(void *context, uint8_t *bytes, size_t count)
{
    struct file *from = context;
    size_t rest = (from->length < from->limit ? from->length : from->limit) - from->at;
    if (rest == 0 && from->limit < from->length) {
        return from->lie;
    }
    size_t part = count < rest ? count : rest;
    memcpy(bytes, from->bytes + from->at, part);
    from->at += part;
    return (int32_t)part;
}

/* Sets the file to its begin. */
static struct file *from(size_t limit, int32_t lie)
{
    file.at = 0;
    file.limit = limit;
    file.lie = lie;
    return &file;
}

static struct file *empty(size_t limit, int32_t lie)
{
    file.length = 0;
    return from(limit, lie);
}

/* A callback that uses the session of the call around it. */
static int32_t write_again(void *context, const uint8_t *bytes, size_t count)
{
    uint32_t number;
    bool done;
    gradlet_type type;
    float value = 0;
    EXPECT(IN_USE, gradlet_session_run(&session, MODEL_TRAIN));
    EXPECT(IN_USE, gradlet_session_begin(&session, MODEL_TRAIN));
    EXPECT(IN_USE, gradlet_session_advance(&session, 1, &done));
    EXPECT(IN_USE, gradlet_session_abort(&session));
    EXPECT(IN_USE, gradlet_session_reset(&session));
    EXPECT(IN_USE, gradlet_session_init(&session, &program, arena, MODEL_ARENA_BYTES));
    EXPECT(IN_USE, gradlet_session_resume(&session, &program, arena, MODEL_ARENA_BYTES));
    EXPECT(IN_USE, gradlet_session_variable_count(&session, &number));
    EXPECT(IN_USE, gradlet_session_input_type(&session, MODEL_TRAIN, 0, &type));
    EXPECT(IN_USE, gradlet_session_set_input(&session, MODEL_TRAIN, 0, GRADLET_DTYPE_F32, &value, 1));
    EXPECT(IN_USE, gradlet_session_set_variable(&session, 0, GRADLET_DTYPE_F32, &value, 1));
    EXPECT(IN_USE, gradlet_session_save(&session, FULL, write_again, context));
    EXPECT(IN_USE, gradlet_session_restore(&session, read_file, context));
    return write_file(context, bytes, count);
}

/* A struct as it is in the middle of a call, which a reset ends there if the struct is in memory that start-up code does not clear. */
static gradlet_session interrupted, in_call;

static int32_t write_interrupted(void *context, const uint8_t *bytes, size_t count)
{
    in_call = interrupted;
    return write_file(context, bytes, count);
}

/* A struct whose call never returned stays in use. Zeroes end that, and the variables are still there. */
static void resets(uint32_t bytes)
{
    uint8_t *memory = exactly(MODEL_ARENA_BYTES);
    EXPECT(OK, gradlet_session_init(&interrupted, &program, memory, MODEL_ARENA_BYTES));
    EXPECT(OK, gradlet_session_save(&interrupted, FULL, write_interrupted, empty(bytes, -1)));
    interrupted = in_call;
    EXPECT(IN_USE, gradlet_session_init(&interrupted, &program, memory, MODEL_ARENA_BYTES));
    EXPECT(IN_USE, gradlet_session_resume(&interrupted, &program, memory, MODEL_ARENA_BYTES));
    EXPECT(IN_USE, gradlet_session_reset(&interrupted));
    memset(&interrupted, 0, sizeof interrupted);
    EXPECT(NOT_INITIALIZED, gradlet_session_reset(&interrupted));
    EXPECT(OK, gradlet_session_resume(&interrupted, &program, memory, MODEL_ARENA_BYTES));
    EXPECT(OK, gradlet_session_reset(&interrupted));
}

void checkpoints(void)
{
    uint32_t bytes;
    EXPECT(OK, gradlet_session_reset(&session));
    train(1);
    OBJECT(gradlet_session, &session, gradlet_session_checkpoint_bytes(it, FULL, &bytes));
    OUT(uint32_t, arena, &session, gradlet_session_checkpoint_bytes(&session, FULL, out));
    EXPECT(BAD_NUMBER, gradlet_session_checkpoint_bytes(&session, 2, &bytes));
    EXPECT(OK, gradlet_session_checkpoint_bytes(&session, FULL, &bytes));

    OBJECT(gradlet_session, &session, gradlet_session_save(it, FULL, write_file, empty(bytes, -1)));
    EXPECT(BAD_NUMBER, gradlet_session_save(&session, 2, write_file, empty(bytes, -1)));
    EXPECT(BAD_NUMBER, gradlet_session_save(&session, UINT32_MAX, write_file, empty(bytes, -1)));
    EXPECT(NULL_POINTER, gradlet_session_save(&session, FULL, NULL, &file));
    static const int32_t lies[] = {-1, INT32_MIN, INT32_MAX, 1 << 20};
    for (size_t index = 0; index < 4; index++) {
        EXPECT(IO, gradlet_session_save(&session, FULL, write_file, empty(bytes - 1, lies[index])));
        EXPECT(IO, gradlet_session_save(&session, FULL, write_file, empty(0, lies[index])));
    }
    EXPECT(IO, gradlet_session_save(&session, FULL, write_file, empty(bytes - 1, 0)));
    EXPECT(OK, gradlet_session_save(&session, CHANGED, write_again, empty(bytes, -1)));
    resets(bytes);
    EXPECT(OK, gradlet_session_save(&session, FULL, write_file, empty(bytes, -1)));

    OBJECT(gradlet_session, &session, gradlet_session_verify(it, read_file, from(bytes, -1)));
    OBJECT(gradlet_session, &session, gradlet_session_restore(it, read_file, from(bytes, -1)));
    OBJECT(gradlet_session, &session, gradlet_session_restore_other(it, &program, read_file, from(bytes, -1)));
    OBJECT(gradlet_program, &program, gradlet_session_restore_other(&session, it, read_file, from(bytes, -1)));
    EXPECT(NULL_POINTER, gradlet_session_verify(&session, NULL, &file));
    EXPECT(NULL_POINTER, gradlet_session_restore(&session, NULL, &file));
    EXPECT(NULL_POINTER, gradlet_session_restore_other(&session, &program, NULL, &file));
    for (size_t limit = 0; limit < bytes; limit += limit < 100 ? 1 : 331) {
        EXPECT(IO, gradlet_session_verify(&session, read_file, from(limit, -1)));
        EXPECT(IO, gradlet_session_verify(&session, read_file, from(limit, INT32_MAX)));
        EXPECT(CUT_SHORT, gradlet_session_verify(&session, read_file, from(limit, 0)));
        EXPECT(CUT_SHORT, gradlet_session_restore(&session, read_file, from(limit, 0)));
    }
    for (size_t at = 0; at < bytes; at += 97) {
        file.bytes[at] ^= 0x10;
        EXPECT_ERROR(gradlet_session_verify(&session, read_file, from(bytes, -1)));
        EXPECT_ERROR(gradlet_session_restore(&session, read_file, from(bytes, -1)));
        file.bytes[at] ^= 0x10;
    }
    EXPECT(OK, gradlet_session_verify(&session, read_file, from(bytes, -1)));
    EXPECT(OK, gradlet_session_restore(&session, read_file, from(bytes, -1)));
    EXPECT(OK, gradlet_session_restore_other(&session, &program, read_file, from(bytes, -1)));
}

/* A flash whose driver fails after some operations, and checks its arguments. */
#define BLOCK 512
#define FLASH 65536u
static uint8_t cells[FLASH];
static long operations = 1000000;
static gradlet_slots kept;

static int failing(uint32_t offset, size_t count)
{
    return operations-- <= 0 || offset % 64 != 0 || count % 64 != 0 || offset > FLASH || count > FLASH - offset;
}

static int32_t read_flash(void *context, uint32_t offset, uint8_t *bytes, size_t count)
{
    if (context != cells || failing(offset, count)) {
        return -1;
    }
    memcpy(bytes, cells + offset, count);
    return 0;
}

static int32_t write_flash(void *context, uint32_t offset, const uint8_t *bytes, size_t count)
{
    if (context != cells || failing(offset, count)) {
        return 1;
    }
    for (size_t at = 0; at < count; at++) {
        cells[offset + at] &= bytes[at];
    }
    return 0;
}

static int32_t erase_flash(void *context, uint32_t offset)
{
    uint32_t number;
    EXPECT(IN_USE, gradlet_slots_save(&kept, &session, FULL, &number));
    EXPECT(IN_USE, gradlet_slots_restore(&kept, &session, UINT32_MAX, &number));
    if (context != cells || offset % BLOCK != 0 || failing(offset, BLOCK)) {
        return INT32_MIN;
    }
    memset(cells + offset, 0xff, BLOCK);
    return 0;
}

static void drivers(gradlet_flash flash)
{
    static gradlet_slots other;
    const gradlet_flash good = flash;
    EXPECT(NULL_POINTER, gradlet_slots_init(NULL, &flash, 0, FLASH, 2));
    EXPECT(MISALIGNED_POINTER, gradlet_slots_init(ODD(gradlet_slots, &other), &flash, 0, FLASH, 2));
    EXPECT(NULL_POINTER, gradlet_slots_init(&other, NULL, 0, FLASH, 2));
    EXPECT(MISALIGNED_POINTER, gradlet_slots_init(&other, ODD(gradlet_flash, &flash), 0, FLASH, 2));
    EXPECT(OVERLAP, gradlet_slots_init(&other, (gradlet_flash *)(void *)&other, 0, FLASH, 2));
    flash.read = NULL;
    EXPECT(NULL_POINTER, gradlet_slots_init(&other, &flash, 0, FLASH, 2));
    flash = good;
    flash.write = NULL;
    EXPECT(NULL_POINTER, gradlet_slots_init(&other, &flash, 0, FLASH, 2));
    flash = good;
    flash.erase = NULL;
    EXPECT(NULL_POINTER, gradlet_slots_init(&other, &flash, 0, FLASH, 2));
    flash = good;
    static const uint32_t blocks[] = {0, 1, 63, 65, 96, UINT32_MAX, FLASH, 1u << 31};
    for (size_t index = 0; index < sizeof blocks / sizeof *blocks; index++) {
        flash.block = blocks[index];
        EXPECT(SLOTS, gradlet_slots_init(&other, &flash, 0, FLASH, 2));
    }
    flash = good;
    EXPECT(SLOTS, gradlet_slots_init(&other, &flash, 0, FLASH, 0));
    EXPECT(SLOTS, gradlet_slots_init(&other, &flash, 0, FLASH, 1));
    EXPECT(SLOTS, gradlet_slots_init(&other, &flash, 0, FLASH, FLASH));
    EXPECT(SLOTS, gradlet_slots_init(&other, &flash, 0, FLASH, UINT32_MAX));
    EXPECT(SLOTS, gradlet_slots_init(&other, &flash, 0, 2 * BLOCK - 1, 2));
    EXPECT(SLOTS, gradlet_slots_init(&other, &flash, BLOCK - 1, FLASH, 2));
    EXPECT(SLOTS, gradlet_slots_init(&other, &flash, BLOCK + 64, FLASH, 2));
    EXPECT(SLOTS, gradlet_slots_init(&other, &flash, FLASH, 0, 2));
    EXPECT(SLOTS, gradlet_slots_init(&other, &flash, 0, FLASH + 2 * BLOCK, 2));
    EXPECT(SLOTS, gradlet_slots_init(&other, &flash, 0, UINT32_MAX, 2));
    EXPECT(SLOTS, gradlet_slots_init(&other, &flash, UINT32_MAX, UINT32_MAX, 2));
}

static void slot_arguments(void)
{
    uint32_t n;
    bool done;
    size_t found;
    gradlet_slot list[3];
    gradlet_session *s = &session;
    OBJECT(gradlet_slots, &kept, gradlet_slots_save(it, s, FULL, &n));
    OBJECT(gradlet_slots, &kept, gradlet_slots_begin_save(it, s, FULL));
    OBJECT(gradlet_slots, &kept, gradlet_slots_advance_save(it, s, 1, &n));
    OBJECT(gradlet_slots, &kept, gradlet_slots_restore(it, s, UINT32_MAX, &n));
    OBJECT(gradlet_slots, &kept, gradlet_slots_begin_restore(it, UINT32_MAX));
    OBJECT(gradlet_slots, &kept, gradlet_slots_advance_restore(it, s, 1, &done, &n));
    OBJECT(gradlet_slots, &kept, gradlet_slots_restore_other(it, s, &program, &n));
    OBJECT(gradlet_slots, &kept, gradlet_slots_list(it, list, 3, &found));
    OBJECT(gradlet_slots, &kept, gradlet_slots_discard_newest(it, s, &n));
    OBJECT(gradlet_session, s, gradlet_slots_save(&kept, it, FULL, &n));
    OBJECT(gradlet_session, s, gradlet_slots_begin_save(&kept, it, FULL));
    OBJECT(gradlet_session, s, gradlet_slots_advance_save(&kept, it, 1, &n));
    OBJECT(gradlet_session, s, gradlet_slots_restore(&kept, it, UINT32_MAX, &n));
    OBJECT(gradlet_session, s, gradlet_slots_advance_restore(&kept, it, 1, &done, &n));
    OBJECT(gradlet_session, s, gradlet_slots_restore_other(&kept, it, &program, &n));
    OBJECT(gradlet_session, s, gradlet_slots_discard_newest(&kept, it, &n));
    OBJECT(gradlet_program, &program, gradlet_slots_restore_other(&kept, s, it, &n));
    OUT(uint32_t, arena, &kept, gradlet_slots_save(&kept, s, FULL, out));
    OUT(uint32_t, s, &kept, gradlet_slots_advance_save(&kept, s, 1, out));
    OUT(uint32_t, arena, &kept, gradlet_slots_restore(&kept, s, UINT32_MAX, out));
    OUT(bool, arena, &kept, gradlet_slots_advance_restore(&kept, s, 1, out, &n));
    OUT(uint32_t, s, &kept, gradlet_slots_advance_restore(&kept, s, 1, &done, out));
    OUT(uint32_t, arena, &kept, gradlet_slots_restore_other(&kept, s, &program, out));
    OUT(uint32_t, arena, &kept, gradlet_slots_discard_newest(&kept, s, out));
    EXPECT(OVERLAP, gradlet_slots_advance_restore(&kept, s, 1, (bool *)(void *)&n, &n));
    EXPECT(BAD_NUMBER, gradlet_slots_save(&kept, s, 2, &n));
    EXPECT(BAD_NUMBER, gradlet_slots_begin_save(&kept, s, 3));
    EXPECT(NULL_POINTER, gradlet_slots_list(&kept, NULL, 3, &found));
    EXPECT(MISALIGNED_POINTER, gradlet_slots_list(&kept, ODD(gradlet_slot, list), 2, &found));
    EXPECT(OVERLAP, gradlet_slots_list(&kept, list, SIZE_MAX, &found));
    EXPECT(OVERLAP, gradlet_slots_list(&kept, (gradlet_slot *)(void *)&kept, 1, &found));
    OUT(size_t, list, &kept, gradlet_slots_list(&kept, list, 3, out));
}

/* Copies the first kernel to `to`. */
static void kernel(float *to)
{
    const void *values;
    size_t count;
    EXPECT(OK, gradlet_session_variable(&session, MODEL_VARIABLE_DENSE_KERNEL, GRADLET_DTYPE_F32, &values, &count));
    memcpy(to, values, count * sizeof *to);
}

/* Saves with a driver that fails from each of its operations on, as if power had failed. A restore then finds the checkpoint before. */
static void losses_of_power(void)
{
    static float old[MODEL_VARIABLE_DENSE_KERNEL_ELEMENTS], now[MODEL_VARIABLE_DENSE_KERNEL_ELEMENTS];
    uint32_t before, n, sliced = 0;
    EXPECT(OK, gradlet_slots_save(&kept, &session, CHANGED, &before));
    kernel(old);
    for (long limit = 0; sliced < 2; limit += limit < 30 ? 1 : 7) {
        train(7);
        kernel(now);
        HOLDS(memcmp(old, now, sizeof now) != 0);
        operations = limit;
        gradlet_result result;
        if (sliced == 0) {
            result = gradlet_slots_save(&kept, &session, CHANGED, &n);
        } else {
            n = 0;
            result = gradlet_slots_begin_save(&kept, &session, CHANGED);
            while (result.code == GRADLET_CODE_OK && n == 0) {
                result = gradlet_slots_advance_save(&kept, &session, 2000, &n);
            }
        }
        operations = 1000000;
        if (result.code == GRADLET_CODE_OK) {
            /* The limit was beyond the last operation. */
            HOLDS(limit > 100 && n == before + 1);
            EXPECT(OK, gradlet_slots_restore(&kept, &session, UINT32_MAX, &n));
            HOLDS(n == before + 1);
            kernel(old);
            HOLDS(memcmp(old, now, sizeof now) == 0);
            before = n;
            limit = -1;
            sliced++;
            continue;
        }
        HOLDS(result.code == GRADLET_CODE_IO);
        EXPECT(OK, gradlet_slots_restore(&kept, &session, UINT32_MAX, &n));
        HOLDS(n == before);
        kernel(now);
        HOLDS(memcmp(old, now, sizeof now) == 0);
    }
}

void slots(void)
{
    uint32_t n = 0;
    bool done = false;
    size_t found = 9;
    gradlet_slot list[3];
    gradlet_flash flash = {cells, read_flash, write_flash, erase_flash, FLASH, BLOCK};
    memset(cells, 0xff, sizeof cells);
    EXPECT(NOT_INITIALIZED, gradlet_slots_save(&kept, &session, FULL, &n));
    drivers(flash);
    /* Slots that are too small for the checkpoint. */
    EXPECT(OK, gradlet_slots_init(&kept, &flash, 0, 8 * BLOCK, 2));
    EXPECT(SLOT_TOO_SMALL, gradlet_slots_save(&kept, &session, FULL, &n));
    EXPECT(OK, gradlet_slots_init(&kept, &flash, BLOCK, FLASH, 2));
    slot_arguments();
    EXPECT(INTERRUPTED, gradlet_slots_advance_save(&kept, &session, 1000, &n));
    EXPECT(INTERRUPTED, gradlet_slots_advance_restore(&kept, &session, 1000, &done, &n));
    EXPECT(OK, gradlet_slots_list(&kept, NULL, 0, &found));
    EXPECT(OK, gradlet_slots_save(&kept, &session, FULL, &n));
    EXPECT(BUFFER_TOO_SMALL, gradlet_slots_list(&kept, list, 0, &found));
    /* In slices, with a change of the session in between. */
    EXPECT(OK, gradlet_slots_begin_save(&kept, &session, FULL));
    EXPECT(OK, gradlet_slots_advance_save(&kept, &session, 1, &n));
    train(3);
    EXPECT(INTERRUPTED, gradlet_slots_advance_save(&kept, &session, 1, &n));
    EXPECT(OK, gradlet_slots_begin_save(&kept, &session, FULL));
    EXPECT(OK, gradlet_slots_advance_save(&kept, &session, 1, &n));
    /* A value that is refused changes nothing, so the save goes on. */
    float value = 0;
    EXPECT(LENGTH, gradlet_session_set_variable(&session, MODEL_VARIABLE_DENSE_KERNEL, GRADLET_DTYPE_F32, &value, 1));
    EXPECT(TENSOR_TYPE, gradlet_session_set_variable(&session, MODEL_VARIABLE_DENSE_KERNEL, GRADLET_DTYPE_I8, &value, 4));
    for (n = 0; n == 0;) {
        EXPECT(OK, gradlet_slots_advance_save(&kept, &session, 1000, &n));
    }
    EXPECT(BUFFER_TOO_SMALL, gradlet_slots_list(&kept, list, 1, &found));
    EXPECT(OK, gradlet_slots_list(&kept, list, 2, &found));
    EXPECT(OK, gradlet_slots_begin_restore(&kept, UINT32_MAX));
    for (done = false; !done;) {
        EXPECT(OK, gradlet_slots_advance_restore(&kept, &session, 1000, &done, &n));
    }
    losses_of_power();
    operations = 0;
    EXPECT(IO, gradlet_slots_restore(&kept, &session, UINT32_MAX, &n));
    EXPECT(IO, gradlet_slots_restore_other(&kept, &session, &program, &n));
    EXPECT(IO, gradlet_slots_list(&kept, list, 3, &found));
    EXPECT(IO, gradlet_slots_discard_newest(&kept, &session, &n));
    operations = 1000000;
    EXPECT(OK, gradlet_slots_restore(&kept, &session, UINT32_MAX, &n));
    EXPECT(OK, gradlet_slots_restore_other(&kept, &session, &program, &n));
    EXPECT(OK, gradlet_slots_discard_newest(&kept, &session, &n));
}
