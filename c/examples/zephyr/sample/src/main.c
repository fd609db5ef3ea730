/* Trains the MLP 64-32-10 for 20 epochs, and prints the losses. `gradlet export mlp:64-32-10 --c model.c` writes the model. */

#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "gradlet.h"
#include "model.h"

static gradlet_program program;
static gradlet_session session;
static uint8_t arena[MODEL_ARENA_BYTES] __aligned(GRADLET_ALIGNMENT);

static bool failed(gradlet_result result)
{
	if (result.code != GRADLET_CODE_OK) {
		char text[160];

		gradlet_text(result, text, sizeof(text));
		printk("error %u: %s\n", result.code, text);
		return true;
	}
	return false;
}

static bool train(unsigned int example, float *loss)
{
	float x[MODEL_TRAIN_INPUT_X_ELEMENTS];
	int32_t y = example % 10;
	const void *values;
	size_t count;

	for (unsigned int index = 0; index < MODEL_TRAIN_INPUT_X_ELEMENTS; index++) {
		x[index] = (float)((index * (example + 3)) % 17) / 17.0f;
	}
	if (failed(gradlet_session_set_input(&session, MODEL_TRAIN, MODEL_TRAIN_INPUT_X, GRADLET_DTYPE_F32, x,
					     MODEL_TRAIN_INPUT_X_ELEMENTS)) ||
	    failed(gradlet_session_set_input(&session, MODEL_TRAIN, MODEL_TRAIN_INPUT_Y, GRADLET_DTYPE_I32, &y, 1)) ||
	    failed(gradlet_session_run(&session, MODEL_TRAIN)) ||
	    failed(gradlet_session_output(&session, MODEL_TRAIN, MODEL_TRAIN_OUTPUT_LOSS, GRADLET_DTYPE_F32, &values,
					  &count))) {
		return false;
	}
	*loss = *(const float *)values;
	return true;
}

int main(void)
{
	if (failed(gradlet_program_load(&program, model_artifact, sizeof(model_artifact), model_kernels, MODEL_KERNEL_COUNT,
					MODEL_SIGNATURES)) ||
	    failed(gradlet_session_init(&session, &program, arena, sizeof(arena)))) {
		return 1;
	}
	for (unsigned int epoch = 0; epoch < 20; epoch++) {
		float sum = 0, loss;

		for (unsigned int example = 0; example < 8; example++) {
			if (!train(example, &loss)) {
				return 1;
			}
			sum += loss;
		}
		printk("epoch %u: loss %d / 1000\n", epoch, (int)(sum / 8 * 1000));
		k_yield();
	}
	return 0;
}
