/* Start of a Cortex-M4F: vector table, floating point, initial values of statics. Another board has its vendor's startup code instead. */

#include <stdint.h>

#include "semihosting.h"

extern uint32_t _stack_top;
extern uint32_t _data_start;
extern uint32_t _data_end;
extern uint32_t _data_source;
extern uint32_t _bss_start;
extern uint32_t _bss_end;

int main(void);

/* The register that grants access to the floating-point unit. */
static volatile uint32_t *const CPACR = (volatile uint32_t *)0xe000ed88;

__attribute__((noreturn)) void reset_handler(void)
{
    *CPACR |= 0xfu << 20;
    __asm__ volatile("dsb\n isb" ::: "memory");
    const uint32_t *source = &_data_source;
    for (uint32_t *word = &_data_start; word < &_data_end; word++) {
        *word = *source++;
    }
    for (uint32_t *word = &_bss_start; word < &_bss_end; word++) {
        *word = 0;
    }
    semihosting_exit(main() == 0);
    __builtin_unreachable();
}

static void fault_handler(void)
{
    semihosting_exit(0);
}

/* The top of the stack, and the handlers of the exceptions up to SysTick. */
__attribute__((section(".vectors"), used)) static const uintptr_t vectors[16] = {
    (uintptr_t)&_stack_top,    (uintptr_t)reset_handler, (uintptr_t)fault_handler, (uintptr_t)fault_handler,
    (uintptr_t)fault_handler,  (uintptr_t)fault_handler, (uintptr_t)fault_handler, 0,
    0,                         0,                        0,                        (uintptr_t)fault_handler,
    (uintptr_t)fault_handler,  0,                        (uintptr_t)fault_handler, (uintptr_t)fault_handler,
};
