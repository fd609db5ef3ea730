/* Trains the MLP 64-32-10 on this machine, and keeps what it has learned in a file. */

#include <stdio.h>
#include <stdlib.h>

#include "gradlet.h"
#include "model.h"

static gradlet_program program;
static gradlet_session session;
_Alignas(GRADLET_ALIGNMENT) static uint8_t arena[MODEL_ARENA_BYTES];

/* Ends the program if a call has failed. */
static void check(gradlet_result result)
{
    if (result.code != GRADLET_CODE_OK) {
        char text[200];
        gradlet_text(result, text, sizeof text);
        fprintf(stderr, "error %u: %s\n", (unsigned)result.code, text);
        exit(1);
    }
}

static int32_t write_file(void *file, const uint8_t *bytes, size_t count)
{
    return fwrite(bytes, 1, count, file) == count ? (int32_t)count : -1;
}

static int32_t read_file(void *file, uint8_t *bytes, size_t count)
{
    size_t number = fread(bytes, 1, count, file);
    return ferror(file) ? -1 : (int32_t)number;
}

static float train(unsigned example)
{
    float x[MODEL_TRAIN_INPUT_X_ELEMENTS];
    int32_t y = (int32_t)(example % 10);
    for (unsigned index = 0; index < MODEL_TRAIN_INPUT_X_ELEMENTS; index++) {
        x[index] = (float)((index * (example + 3)) % 17) / 17.0f;
    }
    check(gradlet_session_set_input(&session, MODEL_TRAIN, MODEL_TRAIN_INPUT_X, GRADLET_DTYPE_F32, x, MODEL_TRAIN_INPUT_X_ELEMENTS));
    check(gradlet_session_set_input(&session, MODEL_TRAIN, MODEL_TRAIN_INPUT_Y, GRADLET_DTYPE_I32, &y, 1));
    check(gradlet_session_run(&session, MODEL_TRAIN));
    const void *loss;
    size_t count;
    check(gradlet_session_output(&session, MODEL_TRAIN, MODEL_TRAIN_OUTPUT_LOSS, GRADLET_DTYPE_F32, &loss, &count));
    return *(const float *)loss;
}

int main(void)
{
    check(gradlet_program_load(&program, model_artifact, sizeof model_artifact, model_kernels, MODEL_KERNEL_COUNT, MODEL_SIGNATURES));
    check(gradlet_session_init(&session, &program, arena, sizeof arena));
    for (unsigned epoch = 0; epoch < 20; epoch++) {
        float sum = 0;
        for (unsigned example = 0; example < 8; example++) {
            sum += train(example);
        }
        printf("epoch %u: loss %.4f\n", epoch, (double)(sum / 8));
    }

    FILE *file = tmpfile();
    if (file == NULL) {
        perror("tmpfile");
        return 1;
    }
    check(gradlet_session_save(&session, GRADLET_CONTENTS_CHANGED, write_file, file));
    float before = train(0);
    rewind(file);
    check(gradlet_session_restore(&session, read_file, file));
    float after = train(0);
    fclose(file);
    if (before != after) {
        fprintf(stderr, "the restored model has the loss %g instead of %g\n", (double)after, (double)before);
        return 1;
    }
    return 0;
}
