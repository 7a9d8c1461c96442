// The engine: it makes the allocations, copies and launches of launch plans, and whole blocks of calls, without Python.
// The engine also notes the signals of a traced call.
//
// A plan is a list of words. Each step is its kind, the number of words that follow it, and these words. Memory is
// named by registers, which hold addresses. Register 0 always holds 0, so that a number is an operand too.
// ``runner/native_code.py`` writes the words, and ``runner/engine.py`` has the structures.

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <utility>

namespace {

using word = int64_t;
using byte = unsigned char;

enum Kind : word { ALLOCATE, RELEASE, FILL, COPY, LAUNCH, DESCRIBE };

struct Plan {
  const word *steps, *end;
  byte **registers;
  const byte *contents;  // fresh memory is filled with copies of these bytes, if there are any
  word contents_size;
  byte **lasting;  // memory for the outputs of a block's calls, which its later blocks use again
  word lasting_count, lasting_used;
  word *entry;  // in which the next output is described: an address, and the index of a form
};

struct Block {
  Plan plan;
  byte *inputs;          // of the first call
  word stride;           // bytes from the inputs of one call to those of the next
  const word *offsets;   // of each input; a negative one means an input without elements
  word input_count;
  word *entries;
};

#if defined(__aarch64__)
constexpr size_t INTEGERS = 8;  // registers for arguments that are integers or addresses
#else
constexpr size_t INTEGERS = 6;
#endif
constexpr size_t FLOATS = 8, MOST_STACKED = 64, ALIGNMENT = 64;

void fill(byte *target, size_t size, const byte *pattern, size_t pattern_size) {
  size_t filled = size < pattern_size ? size : pattern_size;
  std::memcpy(target, pattern, filled);
  while (filled < size) {
    size_t more = filled < size - filled ? filled : size - filled;
    std::memcpy(target + filled, target, more);
    filled += more;
  }
}

// A caller may pass more arguments on the stack than the function takes: it is the caller who removes them.
template <size_t... I, size_t... X, size_t... S>
void call(word function, const word *integers, const double *floats, std::index_sequence<I...>,
          std::index_sequence<X...>, std::index_sequence<S...>) {
  using Function = void (*)(decltype((void)I, word())..., decltype((void)X, double())..., decltype((void)S, word())...);
  reinterpret_cast<Function>(function)(integers[I]..., floats[X]..., integers[INTEGERS + S]...);
}

template <size_t STACKED>
void call(word function, const word *integers, const double *floats, bool with_floats) {
  using Integers = std::make_index_sequence<INTEGERS>;
  using Stacked = std::make_index_sequence<STACKED>;
  if (with_floats)
    call(function, integers, floats, Integers(), std::make_index_sequence<FLOATS>(), Stacked());
  else
    call(function, integers, floats, Integers(), std::index_sequence<>(), Stacked());
}

void launch(const Plan &plan, const word *at) {
  word function = at[0], integer_count = at[1], float_count = at[2];
  word integers[INTEGERS + MOST_STACKED];
  double floats[FLOATS];
  at += 3;
  for (word i = 0; i < integer_count; i++, at += 2) integers[i] = (word)plan.registers[at[0]] + at[1];
  std::memcpy(floats, at, (size_t)float_count * sizeof(word));
  word stacked = integer_count - (word)INTEGERS;
  if (stacked <= 0) return call<0>(function, integers, floats, float_count > 0);
  if (stacked <= 4) return call<4>(function, integers, floats, float_count > 0);
  if (stacked <= 16) return call<16>(function, integers, floats, float_count > 0);
  call<MOST_STACKED>(function, integers, floats, float_count > 0);
}

// Allocate as torch's allocator for the CPU does, which gives no memory for no bytes. The calls of a block make equal
// allocations in the same order, so an output gets the memory of the block before. A new allocation for each output
// would cost as much as a small kernel, and kernels that make their calls themselves would not spend it.
bool allocate(Plan &plan, byte *&place, size_t size, bool lasting) {
  place = nullptr;
  if (size == 0) return true;
  if (lasting && plan.lasting_used < plan.lasting_count) {
    place = plan.lasting[plan.lasting_used++];
  } else {
    void *memory = nullptr;
    if (posix_memalign(&memory, ALIGNMENT, size) != 0) return false;
    place = static_cast<byte *>(memory);
    if (lasting) {
      plan.lasting[plan.lasting_used] = place;
      plan.lasting_count = ++plan.lasting_used;
    }
  }
  if (plan.contents) fill(place, size, plan.contents, (size_t)plan.contents_size);
  return true;
}

// Return false if there is no memory.
bool execute(Plan &plan) {
  for (const word *step = plan.steps; step < plan.end; step += 2 + step[1]) {
    const word *at = step + 2;
    switch (step[0]) {
      case ALLOCATE:
        if (!allocate(plan, plan.registers[at[0]], (size_t)at[1], at[2])) return false;
        break;
      case RELEASE:
        std::free(plan.registers[at[0]]);
        break;
      case FILL:
        fill(plan.registers[at[0]] + at[1], (size_t)at[2], (const byte *)(at + 4), (size_t)at[3]);
        break;
      case COPY:
        std::memmove(plan.registers[at[0]] + at[1], plan.registers[at[2]] + at[3], (size_t)at[4]);
        break;
      case LAUNCH:
        launch(plan, at);
        break;
      case DESCRIBE:
        plan.entry[0] = (word)plan.registers[at[0]] + at[1];
        plan.entry[1] = at[2];
        plan.entry += 2;
        break;
    }
  }
  return true;
}

}  // namespace

// Declarations of Python's stable interface.
extern "C" {
void *PyCFunction_NewEx(void *definition, void *self, void *module);
void *PyErr_NoMemory(void);
void *PyLong_AsVoidPtr(void *number);
void *PyLong_FromVoidPtr(void *address);
void Py_IncRef(void *object);
void Py_DecRef(void *object);
extern struct PassbenchObject _Py_NoneStruct;
}

namespace {

// Execute a plan. The arguments are the addresses for its registers from 1 on.
void *run(void *self, void *const *arguments, intptr_t count) {
  Plan &plan = *static_cast<Plan *>(PyLong_AsVoidPtr(self));
  for (intptr_t i = 0; i < count; i++) plan.registers[1 + i] = static_cast<byte *>(PyLong_AsVoidPtr(arguments[i]));
  if (!execute(plan)) return PyErr_NoMemory();
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

struct Definition {
  const char *name;
  void *(*function)(void *, void *const *, intptr_t);
  int flags;
  const char *documentation;
} definition = {"launch_plan", run, 0x0080, nullptr};  // METH_FASTCALL

// Only set in a traced call: signal, code, address, and 1 for a read or 2 for a write, if that is known.
volatile word *faults = nullptr;
alignas(64) byte handler_stack[1 << 16];  // the kernel's own stack may have overflowed

void note_fault(int number, siginfo_t *fault, void *context) {
  if (faults[0]) return;
  faults[1] = fault->si_code;
  faults[2] = (word)fault->si_addr;
#if defined(__x86_64__)
  if (number == SIGSEGV) faults[3] = static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_ERR] & 2 ? 2 : 1;
#else
  (void)context;
#endif
  faults[0] = number;
}

}  // namespace

extern "C" {

void passbench_nothing() {}

// Return a function of Python that executes a plan.
void *passbench_function(void *plan) {
  void *self = PyLong_FromVoidPtr(plan);
  void *function = PyCFunction_NewEx(&definition, self, nullptr);
  Py_DecRef(self);
  return function;
}

// From now on, write a kernel's first signal to ``place``. The signal still ends the process. Return 0 if this fails.
int passbench_note_faults(word *place) {
  faults = place;
  stack_t stack = {};
  stack.ss_sp = handler_stack;
  stack.ss_size = sizeof handler_stack;
  if (sigaltstack(&stack, nullptr) != 0) return 0;
  struct sigaction action = {};
  action.sa_sigaction = note_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    if (sigaction(number, &action, nullptr) != 0) return 0;
  return 1;
}

// Make the calls of a block and describe their outputs. Return 0 if there is no memory.
int passbench_block(Block *block, word calls) {
  Plan &plan = block->plan;
  plan.entry = block->entries;
  plan.lasting_used = 0;
  byte *inputs = block->inputs;
  for (word made = 0; made < calls; made++, inputs += block->stride) {
    for (word i = 0; i < block->input_count; i++)
      plan.registers[1 + i] = block->offsets[i] < 0 ? nullptr : inputs + block->offsets[i];
    if (!execute(plan)) return 0;
  }
  return 1;
}
}
