/* What runs at every token, stage and span, in C. Optional: where it is not built the Python twins run, and the tests
 * compare the two. What each piece means is said there:
 *
 *   TokenMarks, TokenTimes   tokens.py
 *   StageBase, RecordBase    record.py
 *   BufferBase               buffer.py
 *   Entered                  context.py
 *   begin, name_after_route  gateway.py
 *   client_of, finish_well,  answer.py
 *   finish_stream            answer.py
 *   encode_request, -_record encode.py
 *   plain_tail               encode.py
 *   sender                   answer.py
 *   wire                     wire.py
 *   tcp_info                 tcp_info.py
 *   one_chat_text            sse.py
 *   probe_ticks              loop_probe.py
 *
 * It is one file so that the build is one call of the compiler. The interpreter lock guards everything
 * here; the main interpreter alone may load it. Only public API is used.
 */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <structmember.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#if !defined(__linux__)
#error "the clock below is Python's time.monotonic_ns on Linux only; elsewhere the Python twins run"
#endif
#ifdef Py_GIL_DISABLED
#error "this relies on the interpreter lock; the Python twins run where there is none"
#endif

#define BUCKETS 1902
#define BOUNDS (BUCKETS - 1)
#define MAX_STALLS 8
#define STALL_MIN_NS 20000000LL
#define STALL_MEDIANS 4
#define MAX_STAGES 512
#define TAIL 5
#define SAMPLE_MASK 31
#define INTERFACE 8 /* native.py expects this one */

static PyObject *other_clock; /* NULL: the real one */
static PyObject *current;     /* the context variable CURRENT */
static PyObject *streaming_now;
static PyTypeObject *record_type;
static PyTypeObject *marks_type, *times_type, *stage_type, *sender_type, *wire_type, *record_base, *buffer_type, *entered_type;
static PyObject *stage_heads, *make_stage_head, *make_pair, *make_status, *draw_block;
static PyObject *is_chosen, *read_weight, *random_bits, *parse_caller, *write_state, *otel_current, *otel_context,
    *request_span, *span_key, *record_module;
static PyObject *empty_text, *empty_bytes;
static PyObject *s_more_body, *s_write_paused, *s_span_id, *s_trace_id, *s_parent_span_id, *s_start_ns, *s_end_ns,
    *s_stages, *s_deliver, *s_name, *s_type, *s_status, *s_headers, *s_body, *s_streaming,
    *s_first_ns, *s_answer_ns, *s__start_ns, *s__status, *s__framed, *s__size, *s__fast, *s_sampled, *s_trace_state, *s_size,
    *s_method, *s_begin_ns, *s_seen, *s_websocket, *s_request_size, *s_transport, *s_get_extra_info, *s_socket, *s_fileno,
    *s_submit, *s_response_model, *s_engine_of_new, *s_status_code, *s_client_rtt, *s_retransmits, *s_route, *s_path, *s_tailtrace_route, *b_traceparent,
    *b_tracestate, *s_write, *s_saw_head, *s_saw_body, *s_start_message, *s_body_message, *s_response_complete;
static int64_t bounds[BOUNDS];
/* By bit length and the bits below the highest: the bucket of the smallest number that begins so. An octave has 35 buckets
 * and 64 cells, so a search sees at most two bounds. */
#define CELLS 64
static int first_of_cell[64 * CELLS];

static int text(PyObject **to, const char *value);

/* Clock ----------------------------------------------------------------------------------------------------------- */

static int
now_ns(int64_t *now)
{
    if (other_clock == NULL) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        *now = (int64_t)t.tv_sec * 1000000000LL + t.tv_nsec;
        return 0;
    }
    PyObject *read = PyObject_CallNoArgs(other_clock);
    if (read == NULL) {
        return -1;
    }
    *now = PyLong_AsLongLong(read);
    Py_DECREF(read);
    return *now == -1 && PyErr_Occurred() ? -1 : 0;
}

/* The same for marks in close order: within a millisecond of a reading of the clock, by the processor's own counter, which
 * costs a quarter and takes no other code with it. Only where the kernel itself keeps its time by that counter: then it runs
 * evenly and alike on all cores. */
#define NEAR_NS 1000000LL
#define BASE_NS 10000000LL
#define RENEW_NS 1000000000LL
#define INTERRUPTED 5000 /* ticks; reading the clock takes a hundred */

static struct {
    uint64_t at, near, per_tick; /* `near` is 0 while it cannot be told; nanoseconds a tick as a fraction of 2^32 */
    int64_t ns;
    uint64_t base_at;
    int64_t base_ns;
} counter;
static int counter_is_clock;

#if defined(__x86_64__)
#include <x86intrin.h>
#define TICKS() __rdtsc()
#else
#define TICKS() 0
#endif

static void
find_counter(void)
{
#if defined(__x86_64__)
    char name[8] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "r");
    if (file != NULL) {
        counter_is_clock = fgets(name, sizeof name, file) != NULL && strcmp(name, "tsc\n") == 0;
        fclose(file);
    }
#endif
}

static int __attribute__((noinline))
read_both(int64_t *now)
{
    uint64_t before = TICKS();
    if (now_ns(now) < 0) {
        return -1;
    }
    uint64_t after = TICKS();
    int64_t floor = counter.near ? counter.ns + NEAR_NS : 0;
    counter.near = 0;
    if (!counter_is_clock || other_clock != NULL) {
        return 0;
    }
    if (floor > *now && floor - *now < 1000) {
        *now = floor; /* never before a mark that was told by the counter */
    }
    int64_t elapsed = *now - counter.base_ns;
    uint64_t ticks = after - counter.base_at;
    if (after - before > INTERRUPTED) {
        return 0;
    }
    if (counter.base_at == 0 || elapsed >= RENEW_NS) {
        counter.base_at = after;
        counter.base_ns = *now;
    }
    else if (elapsed >= BASE_NS) {
        double per_tick = (double)elapsed / (double)ticks * 4294967296.0;
        counter.per_tick = per_tick >= 1e6 && per_tick < 4e10 ? (uint64_t)per_tick : 0;
    }
    if (counter.per_tick) {
        counter.at = after;
        counter.ns = *now;
        counter.near = (uint64_t)((double)NEAR_NS / (double)counter.per_tick * 4294967296.0);
    }
    return 0;
}

static inline int
mark_ns(int64_t *now)
{
    uint64_t since = TICKS() - counter.at;
    if (since < counter.near) {
        *now = counter.ns + (int64_t)((since * counter.per_tick) >> 32);
        return 0;
    }
    return read_both(now);
}

static PyObject *
use_clock(PyObject *module, PyObject *callable)
{
    counter.near = 0;
    Py_XSETREF(other_clock, callable == Py_None ? NULL : Py_NewRef(callable));
    Py_RETURN_NONE;
}

/* Marks ----------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    int64_t *at;
    Py_ssize_t size, room;
} Marks;

static int
push(Marks *self, int64_t mark)
{
    if (self->size == self->room) {
        Py_ssize_t room = self->room ? self->room * 2 : 32;
        int64_t *at = PyMem_Realloc(self->at, (size_t)room * sizeof(int64_t));
        if (at == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->at = at;
        self->room = room;
    }
    self->at[self->size++] = mark;
    return 0;
}

static PyObject *
marks_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_GET_SIZE(args) || (kwargs != NULL && PyDict_GET_SIZE(kwargs))) {
        PyErr_SetString(PyExc_TypeError, "TokenMarks() takes no arguments");
        return NULL;
    }
    return type->tp_alloc(type, 0);
}

static void
marks_dealloc(Marks *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(self->at);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
marks_append(Marks *self, PyObject *value)
{
    long long mark = PyLong_AsLongLong(value);
    if (mark == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return push(self, mark) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
marks_mark(Marks *self, PyObject *Py_UNUSED(ignored))
{
    int64_t now;
    return mark_ns(&now) < 0 || push(self, now) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
marks_pop(Marks *self, PyObject *Py_UNUSED(ignored))
{
    if (self->size == 0) {
        PyErr_SetString(PyExc_IndexError, "pop from no marks");
        return NULL;
    }
    return PyLong_FromLongLong(self->at[--self->size]);
}

static PyObject *
marks_take(Marks *self, PyObject *count)
{
    Py_ssize_t n = PyNumber_AsSsize_t(count, PyExc_OverflowError);
    if (n == -1 && PyErr_Occurred()) {
        return NULL;
    }
    n = n < 0 ? 0 : n > self->size ? self->size : n;
    Marks *taken = (Marks *)marks_type->tp_alloc(marks_type, 0);
    if (taken == NULL) {
        return NULL;
    }
    if (n) {
        taken->at = PyMem_Malloc((size_t)n * sizeof(int64_t));
        if (taken->at == NULL) {
            Py_DECREF(taken);
            return PyErr_NoMemory();
        }
        memcpy(taken->at, self->at, (size_t)n * sizeof(int64_t));
        taken->size = taken->room = n;
        self->size -= n;
        memmove(self->at, self->at + n, (size_t)self->size * sizeof(int64_t));
    }
    return (PyObject *)taken;
}

static Py_ssize_t
marks_length(Marks *self)
{
    return self->size;
}

static PyObject *
marks_item(Marks *self, Py_ssize_t index)
{
    if (index < 0 || index >= self->size) {
        PyErr_SetString(PyExc_IndexError, "no such mark");
        return NULL;
    }
    return PyLong_FromLongLong(self->at[index]);
}

static PyMethodDef marks_methods[] = {
    {"append", (PyCFunction)marks_append, METH_O, NULL},
    {"mark", (PyCFunction)marks_mark, METH_NOARGS, NULL},
    {"pop", (PyCFunction)marks_pop, METH_NOARGS, NULL},
    {"take", (PyCFunction)marks_take, METH_O, NULL},
    {NULL},
};

static PyType_Slot marks_slots[] = {
    {Py_tp_new, marks_new}, {Py_tp_dealloc, marks_dealloc}, {Py_tp_methods, marks_methods},
    {Py_sq_length, marks_length}, {Py_sq_item, marks_item}, {0, NULL},
};

static PyType_Spec marks_spec = {
    "tailtrace.instrumentation._fast.TokenMarks", sizeof(Marks), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    marks_slots,
};

/* TokenTimes ------------------------------------------------------------------------------------------------------ */

typedef struct {
    int64_t length, begin;
} Stall;

typedef struct {
    PyObject_HEAD
    long long first_ns, last_ns, count;
    int lowest, highest, stalls;
    Stall longest[MAX_STALLS]; /* longest first */
    uint64_t counts[BUCKETS];
} Times;

static int
bit_length(uint64_t value)
{
    return value ? 64 - __builtin_clzll(value) : 0;
}

static int
cell_of(uint64_t value)
{
    int bits = bit_length(value);
    uint64_t below = bits > 7 ? value >> (bits - 7) : value << (7 - bits);
    return bits * CELLS + (int)(below & (CELLS - 1));
}

/* The first bucket whose bound is not below `gap`. */
static int
bucket_of(int64_t gap)
{
    if (gap <= 1) {
        return 0;
    }
    int k = first_of_cell[cell_of((uint64_t)gap)];
    while (k < BOUNDS && bounds[k] < gap) {
        k++;
    }
    return k;
}

static PyObject *
use_bounds(PyObject *module, PyObject *given)
{
    PyObject *fast = PySequence_Fast(given, "bounds: expected a list");
    if (fast == NULL) {
        return NULL;
    }
    if (PySequence_Fast_GET_SIZE(fast) != BOUNDS) {
        Py_DECREF(fast);
        return PyErr_Format(PyExc_ValueError, "bounds: expected %d of them", BOUNDS);
    }
    for (Py_ssize_t k = 0; k < BOUNDS; k++) {
        bounds[k] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, k));
        if (bounds[k] == -1 && PyErr_Occurred()) {
            Py_DECREF(fast);
            return NULL;
        }
    }
    Py_DECREF(fast);
    int k = 0;
    for (int cell = CELLS; cell < 64 * CELLS; cell++) {
        int bits = cell / CELLS;
        uint64_t begins = (uint64_t)(CELLS + cell % CELLS);
        uint64_t smallest = bits > 7 ? begins << (bits - 7) : begins >> (7 - bits);
        while (k < BOUNDS && (uint64_t)bounds[k] < smallest) {
            k++;
        }
        first_of_cell[cell] = k;
    }
    Py_RETURN_NONE;
}

static int
ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The number that stands at `rank` once sorted; `values` are reordered. */
static int64_t
select_rank(int64_t *values, Py_ssize_t count, Py_ssize_t rank)
{
    Py_ssize_t low = 0, high = count - 1;
    for (int round = 0; low < high; round++) {
        if (round == 64) {
            qsort(values + low, (size_t)(high - low + 1), sizeof(int64_t), ascending);
            break;
        }
        int64_t pivot = values[low + (high - low) / 2];
        Py_ssize_t i = low, j = high;
        while (i <= j) {
            while (values[i] < pivot) {
                i++;
            }
            while (values[j] > pivot) {
                j--;
            }
            if (i <= j) {
                int64_t kept = values[i];
                values[i++] = values[j];
                values[j--] = kept;
            }
        }
        if (rank <= j) {
            high = j;
        }
        else if (rank >= i) {
            low = i;
        }
        else {
            break;
        }
    }
    return values[rank];
}

static void
add_stall(Times *self, int64_t length, int64_t begin)
{
    int at = self->stalls;
    while (at > 0 && (self->longest[at - 1].length < length
                      || (self->longest[at - 1].length == length && self->longest[at - 1].begin < begin))) {
        at--;
    }
    if (at == MAX_STALLS) {
        return;
    }
    if (self->stalls < MAX_STALLS) {
        self->stalls++;
    }
    memmove(self->longest + at + 1, self->longest + at, (size_t)(self->stalls - 1 - at) * sizeof(Stall));
    self->longest[at] = (Stall){length, begin};
}

static int64_t
minus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static int
fold(Times *self, const int64_t *at, Py_ssize_t size)
{
    if (size == 0) {
        return 0;
    }
    Py_ssize_t begin = self->count ? 0 : 1;
    int64_t before = begin ? at[0] : self->last_ns;
    int64_t largest = INT64_MIN, previous = before;
    for (Py_ssize_t i = begin; i < size; i++) {
        int64_t gap = minus(at[i], previous);
        previous = at[i];
        int k = bucket_of(gap);
        self->counts[k]++;
        self->lowest = k < self->lowest ? k : self->lowest;
        self->highest = k > self->highest ? k : self->highest;
        largest = gap > largest ? gap : largest;
    }
    if (largest >= STALL_MIN_NS) {
        Py_ssize_t count = size - begin;
        int64_t *gaps = PyMem_Malloc((size_t)count * sizeof(int64_t));
        if (gaps == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        for (Py_ssize_t i = 0; i < count; i++) {
            gaps[i] = minus(at[begin + i], i ? at[begin + i - 1] : before);
        }
        int64_t median = select_rank(gaps, count, count / 2);
        PyMem_Free(gaps);
        int64_t limit = median > INT64_MAX / STALL_MEDIANS ? INT64_MAX : median * STALL_MEDIANS;
        limit = limit < STALL_MIN_NS ? STALL_MIN_NS : limit;
        if (largest >= limit) {
            for (Py_ssize_t i = 0; i < count; i++) {
                int64_t gap = minus(at[begin + i], i ? at[begin + i - 1] : before);
                if (gap >= limit) {
                    add_stall(self, gap, minus(at[begin + i], gap));
                }
            }
        }
    }
    if (begin) {
        self->first_ns = at[0];
    }
    self->last_ns = at[size - 1];
    self->count += size;
    return 0;
}

static PyObject *
times_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_GET_SIZE(args) || (kwargs != NULL && PyDict_GET_SIZE(kwargs))) {
        PyErr_SetString(PyExc_TypeError, "TokenTimes() takes no arguments");
        return NULL;
    }
    Times *self = (Times *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->lowest = BUCKETS;
        self->highest = -1;
    }
    return (PyObject *)self;
}

static void
plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
times_fold(Times *self, PyObject *times)
{
    int done;
    if (Py_IS_TYPE(times, marks_type)) {
        done = fold(self, ((Marks *)times)->at, ((Marks *)times)->size);
    }
    else {
        PyObject *fast = PySequence_Fast(times, "fold() expected marks");
        if (fast == NULL) {
            return NULL;
        }
        Py_ssize_t size = PySequence_Fast_GET_SIZE(fast);
        int64_t *at = PyMem_Malloc((size_t)(size ? size : 1) * sizeof(int64_t));
        done = at == NULL ? -1 : 0;
        if (at == NULL) {
            PyErr_NoMemory();
        }
        for (Py_ssize_t i = 0; done == 0 && i < size; i++) {
            at[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
            done = at[i] == -1 && PyErr_Occurred() ? -1 : 0;
        }
        done = done < 0 ? -1 : fold(self, at, size);
        PyMem_Free(at);
        Py_DECREF(fast);
    }
    return done < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
times_counts(Times *self, void *closure)
{
    PyObject *counts = PyDict_New();
    for (int k = self->lowest; counts != NULL && k <= self->highest; k++) {
        if (self->counts[k]) {
            PyObject *key = PyLong_FromLong(k), *value = PyLong_FromUnsignedLongLong(self->counts[k]);
            if (key == NULL || value == NULL || PyDict_SetItem(counts, key, value) < 0) {
                Py_CLEAR(counts);
            }
            Py_XDECREF(key);
            Py_XDECREF(value);
        }
    }
    return counts;
}

static PyObject *
times_stalls(Times *self, void *closure)
{
    PyObject *stalls = PyList_New(self->stalls);
    for (int i = 0; stalls != NULL && i < self->stalls; i++) {
        PyObject *pair = Py_BuildValue("LL", (long long)self->longest[i].length, (long long)self->longest[i].begin);
        if (pair == NULL) {
            Py_CLEAR(stalls);
        }
        else {
            PyList_SET_ITEM(stalls, i, pair);
        }
    }
    return stalls;
}

static char *
write_unsigned(char *out, uint64_t value)
{
    char digits[20];
    int n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    while (n) {
        *out++ = digits[--n];
    }
    return out;
}

static char *
write_signed(char *out, int64_t value)
{
    if (value < 0) {
        *out++ = '-';
        return write_unsigned(out, 0 - (uint64_t)value);
    }
    return write_unsigned(out, (uint64_t)value);
}

/* At most this many characters of gaps for `pieces` buckets, and of stalls. */
#define GAP_TEXT 26
#define STALLS_TEXT (MAX_STALLS * 44)

static size_t
gap_pieces(const Times *self)
{
    size_t pieces = 0;
    for (int k = self->lowest; k <= self->highest; k++) {
        pieces += self->counts[k] != 0;
    }
    return pieces;
}

static char *
write_gaps(const Times *self, char *text)
{
    char *out = text;
    for (int k = self->lowest; k <= self->highest; k++) {
        if (self->counts[k]) {
            if (out != text) {
                *out++ = ',';
            }
            out = write_unsigned(out, (uint64_t)k);
            *out++ = ':';
            out = write_unsigned(out, self->counts[k]);
        }
    }
    return out;
}

static PyObject *
times_gaps_text(Times *self, PyObject *Py_UNUSED(ignored))
{
    char *text = PyMem_Malloc(gap_pieces(self) * GAP_TEXT + 1);
    if (text == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *result = PyUnicode_FromStringAndSize(text, write_gaps(self, text) - text);
    PyMem_Free(text);
    return result;
}

static char *
write_stalls(const Times *self, int64_t start_ns, char *text)
{
    Stall sorted[MAX_STALLS];
    for (int i = 0; i < self->stalls; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1].begin > self->longest[i].begin; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = self->longest[i];
    }
    char *out = text;
    for (int i = 0; i < self->stalls; i++) {
        if (i) {
            *out++ = ',';
        }
        out = write_signed(out, minus(sorted[i].begin, start_ns));
        *out++ = ':';
        out = write_signed(out, sorted[i].length);
    }
    return out;
}

static PyObject *
times_stalls_text(Times *self, PyObject *start)
{
    long long start_ns = PyLong_AsLongLong(start);
    if (start_ns == -1 && PyErr_Occurred()) {
        return NULL;
    }
    char text[STALLS_TEXT];
    return PyUnicode_FromStringAndSize(text, write_stalls(self, start_ns, text) - text);
}

static PyMethodDef times_methods[] = {
    {"fold", (PyCFunction)times_fold, METH_O, NULL},
    {"gaps_text", (PyCFunction)times_gaps_text, METH_NOARGS, NULL},
    {"stalls_text", (PyCFunction)times_stalls_text, METH_O, NULL},
    {NULL},
};

static PyMemberDef times_members[] = {
    {"first_ns", T_LONGLONG, offsetof(Times, first_ns), READONLY, NULL},
    {"last_ns", T_LONGLONG, offsetof(Times, last_ns), READONLY, NULL},
    {"count", T_LONGLONG, offsetof(Times, count), READONLY, NULL},
    {NULL},
};

static PyGetSetDef times_getset[] = {
    {"counts", (getter)times_counts, NULL, NULL, NULL},
    {"stalls", (getter)times_stalls, NULL, NULL, NULL},
    {NULL},
};

static PyType_Slot times_slots[] = {
    {Py_tp_new, times_new}, {Py_tp_dealloc, plain_dealloc}, {Py_tp_methods, times_methods},
    {Py_tp_members, times_members}, {Py_tp_getset, times_getset}, {0, NULL},
};

static PyType_Spec times_spec = {
    "tailtrace.instrumentation._fast.TokenTimes", sizeof(Times), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    times_slots,
};

/* StageBase ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *name, *attributes, *parent, *error, *own_id, *lone_id, *token;
    long long start_ns, end_ns;
} Stage;

static PyObject *
stage_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Stage *self = (Stage *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->name = Py_NewRef(Py_None);
        self->attributes = Py_NewRef(Py_None);
        self->parent = Py_NewRef(Py_None);
        self->error = Py_NewRef(empty_text);
        self->own_id = Py_NewRef(empty_bytes);
        self->lone_id = Py_NewRef(empty_bytes);
    }
    return (PyObject *)self;
}

static int
stage_init(Stage *self, PyObject *args, PyObject *kwargs)
{
    PyObject *name, *attributes = Py_None;
    Py_ssize_t given = PyTuple_GET_SIZE(args);
    if ((given == 1 || given == 2) && kwargs == NULL) {
        name = PyTuple_GET_ITEM(args, 0);
        attributes = given == 2 ? PyTuple_GET_ITEM(args, 1) : Py_None;
    }
    else {
        static char *names[] = {"name", "attributes", NULL};
        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:Stage", names, &name, &attributes)) {
            return -1;
        }
    }
    Py_XSETREF(self->name, Py_NewRef(name));
    Py_XSETREF(self->attributes, Py_NewRef(attributes));
    return 0;
}

static int
stage_traverse(Stage *self, visitproc visit, void *arg)
{
    Py_VISIT(self->name);
    Py_VISIT(self->attributes);
    Py_VISIT(self->parent);
    Py_VISIT(self->error);
    Py_VISIT(self->own_id);
    Py_VISIT(self->lone_id);
    Py_VISIT(self->token);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int
stage_clear(Stage *self)
{
    Py_CLEAR(self->name);
    Py_CLEAR(self->attributes);
    Py_CLEAR(self->parent);
    Py_CLEAR(self->error);
    Py_CLEAR(self->own_id);
    Py_CLEAR(self->lone_id);
    Py_CLEAR(self->token);
    return 0;
}

static void
stage_dealloc(Stage *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    /* Stages inside stages inside stages: as deep as the user's own nesting. */
    Py_TRASHCAN_BEGIN(self, stage_dealloc)
    stage_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
    Py_TRASHCAN_END
}

static int
is_stage(PyObject *scope)
{
    return scope != NULL && PyObject_TypeCheck(scope, stage_type);
}

static PyObject *
stage_enter(Stage *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *scope = NULL;
    if (PyContextVar_Get(current, NULL, &scope) < 0) {
        return NULL;
    }
    while (is_stage(scope) && ((Stage *)scope)->end_ns) {
        PyObject *outer = Py_XNewRef(((Stage *)scope)->parent);
        Py_SETREF(scope, outer);
    }
    Py_XSETREF(self->parent, scope != NULL ? scope : Py_NewRef(Py_None));
    PyObject *token = PyContextVar_Set(current, (PyObject *)self);
    if (token == NULL) {
        return NULL;
    }
    Py_XSETREF(self->token, token);
    int64_t now;
    if (now_ns(&now) < 0) {
        return NULL;
    }
    self->start_ns = now;
    return Py_NewRef(self);
}

/* 1: put into its record; 0: somebody else has to look at it. */
static int
put_into_record(Stage *self)
{
    PyObject *scope = self->parent;
    while (is_stage(scope)) {
        scope = ((Stage *)scope)->parent;
    }
    if (scope == NULL || !Py_IS_TYPE(scope, record_type)) {
        return 0;
    }
    PyObject *end = PyObject_GetAttr(scope, s_end_ns);
    int over = end == NULL ? -1 : PyObject_IsTrue(end);
    Py_XDECREF(end);
    if (over) {
        return over < 0 ? -1 : 0;
    }
    PyObject *stages = PyObject_GetAttr(scope, s_stages);
    if (stages == NULL) {
        return -1;
    }
    int put = 0;
    if (PyList_CheckExact(stages) && PyList_GET_SIZE(stages) < MAX_STAGES) {
        put = PyList_Append(stages, (PyObject *)self) < 0 ? -1 : 1;
    }
    Py_DECREF(stages);
    return put;
}

static PyObject *
stage_exit(Stage *self, PyObject *const *args, Py_ssize_t count)
{
    int64_t now;
    if (now_ns(&now) < 0) {
        return NULL;
    }
    self->end_ns = now;
    if (self->token != NULL) {
        PyObject *token = self->token;
        self->token = NULL;
        int done = PyContextVar_Reset(current, token);
        Py_DECREF(token);
        if (done < 0) {
            if (!PyErr_ExceptionMatches(PyExc_ValueError)) {
                return NULL;
            }
            PyErr_Clear();
        }
    }
    PyObject *kind = count ? args[0] : Py_None;
    if (kind != Py_None && kind != PyExc_GeneratorExit) {
        PyObject *name = PyObject_GetAttr(kind, s_name);
        if (name == NULL) {
            return NULL;
        }
        Py_XSETREF(self->error, name);
    }
    int put = put_into_record(self);
    if (put < 0) {
        return NULL;
    }
    if (put == 0) {
        PyObject *done = PyObject_CallMethodNoArgs((PyObject *)self, s_deliver);
        if (done == NULL) {
            return NULL;
        }
        Py_DECREF(done);
    }
    Py_RETURN_NONE;
}

static PyMethodDef stage_methods[] = {
    {"__enter__", (PyCFunction)stage_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))stage_exit, METH_FASTCALL, NULL},
    {NULL},
};

static PyMemberDef stage_members[] = {
    {"name", T_OBJECT, offsetof(Stage, name), 0, NULL},
    {"attributes", T_OBJECT, offsetof(Stage, attributes), 0, NULL},
    {"parent", T_OBJECT, offsetof(Stage, parent), 0, NULL},
    {"error", T_OBJECT, offsetof(Stage, error), 0, NULL},
    {"own_id", T_OBJECT, offsetof(Stage, own_id), 0, NULL},
    {"lone_id", T_OBJECT, offsetof(Stage, lone_id), 0, NULL},
    {"start_ns", T_LONGLONG, offsetof(Stage, start_ns), 0, NULL},
    {"end_ns", T_LONGLONG, offsetof(Stage, end_ns), 0, NULL},
    {NULL},
};

static PyType_Slot stage_slots[] = {
    {Py_tp_new, stage_new}, {Py_tp_init, stage_init}, {Py_tp_dealloc, stage_dealloc},
    {Py_tp_traverse, stage_traverse}, {Py_tp_clear, stage_clear}, {Py_tp_methods, stage_methods},
    {Py_tp_members, stage_members}, {0, NULL},
};

static PyType_Spec stage_spec = {
    "tailtrace.instrumentation._fast.StageBase", sizeof(Stage), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, stage_slots,
};

static PyObject *
use_scopes(PyObject *module, PyObject *args)
{
    PyObject *variable, *record, *streaming;
    if (!PyArg_ParseTuple(args, "OO!O!:use_scopes", &variable, &PyType_Type, &record, &PyDict_Type, &streaming)) {
        return NULL;
    }
    if (!PyContextVar_CheckExact(variable)) {
        PyErr_SetString(PyExc_TypeError, "use_scopes() expected a ContextVar");
        return NULL;
    }
    Py_XSETREF(current, Py_NewRef(variable));
    Py_XSETREF(record_type, (PyTypeObject *)Py_NewRef(record));
    Py_XSETREF(streaming_now, Py_NewRef(streaming));
    Py_RETURN_NONE;
}

/* Encoding -------------------------------------------------------------------------------------------------------- */

typedef struct {
    unsigned char *at;
    size_t size, room;
    unsigned char own[4096];
} Out;

static int
reserve(Out *out, size_t more)
{
    if (out->room - out->size >= more) {
        return 0;
    }
    if (more > PY_SSIZE_T_MAX / 4 - out->size) {
        PyErr_NoMemory();
        return -1;
    }
    size_t room = (out->size + more) * 2;
    unsigned char *at = PyMem_Realloc(out->at == out->own ? NULL : out->at, room);
    if (at == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (out->at == out->own) {
        memcpy(at, out->own, out->size);
    }
    out->at = at;
    out->room = room;
    return 0;
}

static int
write_bytes(Out *out, const void *from, size_t size)
{
    if (reserve(out, size) < 0) {
        return -1;
    }
    memcpy(out->at + out->size, from, size);
    out->size += size;
    return 0;
}

static size_t
varint_size(uint64_t value)
{
    size_t size = 1;
    for (; value > 127; value >>= 7) {
        size++;
    }
    return size;
}

static unsigned char *
write_varint(unsigned char *to, uint64_t value)
{
    for (; value > 127; value >>= 7) {
        *to++ = (unsigned char)(value | 128);
    }
    *to++ = (unsigned char)value;
    return to;
}

static unsigned char *
write_fixed64(unsigned char *to, uint64_t value)
{
    for (int byte = 0; byte < 8; byte++) {
        *to++ = (unsigned char)(value >> (8 * byte));
    }
    return to;
}

/* Borrowed UTF-8 of a text, or NULL without an error where it holds lone surrogates. */
static const char *
utf8(PyObject *text, Py_ssize_t *size)
{
    const char *found = PyUnicode_AsUTF8AndSize(text, size);
    if (found == NULL && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        PyErr_Clear();
    }
    return found;
}

static int
write_object(Out *out, PyObject *encoded)
{
    if (!PyBytes_Check(encoded)) {
        PyErr_Format(PyExc_TypeError, "expected bytes, got %.100s", Py_TYPE(encoded)->tp_name);
        return -1;
    }
    return write_bytes(out, PyBytes_AS_STRING(encoded), (size_t)PyBytes_GET_SIZE(encoded));
}

static int
write_result(Out *out, PyObject *encoded)
{
    int done = encoded == NULL ? -1 : write_object(out, encoded);
    Py_XDECREF(encoded);
    return done;
}

/* One KeyValue as field 9 of a span. Whatever is not a plain scalar goes to Python's `attribute`. */
static int
write_pair(Out *out, PyObject *key, PyObject *value)
{
    Py_ssize_t key_size = 0, text_size = 0;
    const char *name = NULL, *text = NULL;
    unsigned char number[16], *end = number;
    if (PyUnicode_CheckExact(key)) {
        name = utf8(key, &key_size);
    }
    if (name == NULL && PyErr_Occurred()) {
        return -1;
    }
    if (name != NULL && PyUnicode_CheckExact(value)) {
        text = utf8(value, &text_size);
        if (text == NULL && PyErr_Occurred()) {
            return -1;
        }
    }
    else if (name != NULL && PyBool_Check(value)) {
        *end++ = 0x10;
        *end++ = value == Py_True;
    }
    else if (name != NULL && PyLong_CheckExact(value)) {
        int beyond = 0;
        long long integer = PyLong_AsLongLongAndOverflow(value, &beyond);
        if (!beyond) {
            *end++ = 0x18;
            end = write_varint(end, (uint64_t)integer);
        }
    }
    else if (name != NULL && PyFloat_CheckExact(value)) {
        double real = PyFloat_AS_DOUBLE(value);
        uint64_t bits;
        memcpy(&bits, &real, 8);
        *end++ = 0x21;
        end = write_fixed64(end, bits);
    }
    if (text == NULL && end == number) {
        PyObject *tag = PyLong_FromLong(0x4A);
        PyObject *encoded = tag == NULL ? NULL : PyObject_CallFunctionObjArgs(make_pair, tag, key, value, NULL);
        Py_XDECREF(tag);
        return write_result(out, encoded);
    }
    size_t scalar = text == NULL ? (size_t)(end - number) : 1 + varint_size((uint64_t)text_size) + (size_t)text_size;
    size_t body = 1 + varint_size((uint64_t)key_size) + (size_t)key_size + 1 + varint_size(scalar) + scalar;
    if (reserve(out, body + 11) < 0) {
        return -1;
    }
    unsigned char *to = out->at + out->size;
    *to++ = 0x4A;
    to = write_varint(to, body);
    *to++ = 0x0A;
    to = write_varint(to, (uint64_t)key_size);
    memcpy(to, name, (size_t)key_size);
    to += key_size;
    *to++ = 0x12;
    to = write_varint(to, scalar);
    if (text == NULL) {
        memcpy(to, number, scalar);
        to += scalar;
    }
    else {
        *to++ = 0x0A;
        to = write_varint(to, (uint64_t)text_size);
        memcpy(to, text, (size_t)text_size);
        to += text_size;
    }
    out->size = (size_t)(to - out->at);
    return 0;
}

static int
write_pairs(Out *out, PyObject *attributes)
{
    if (!PyDict_Check(attributes)) {
        PyErr_SetString(PyExc_TypeError, "attributes: expected a dict");
        return -1;
    }
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(attributes, &position, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        int done = write_pair(out, key, value);
        Py_DECREF(key);
        Py_DECREF(value);
        if (done < 0) {
            return -1;
        }
    }
    return 0;
}

static int
is_id(PyObject *id, Py_ssize_t size)
{
    if (id != NULL && PyBytes_CheckExact(id) && PyBytes_GET_SIZE(id) == size) {
        return 1;
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "expected an id of %zd bytes", size);
    }
    return 0;
}

/* A span up to its times. `length_at` is where its length is put in once it is known. */
static int
begin_span(Out *out, const char *trace_id, PyObject *parent_id, const char *span_id, int64_t start_ns, int64_t end_ns,
           size_t *length_at)
{
    if (start_ns < 0 || end_ns < 0) {
        PyErr_SetString(PyExc_ValueError, "a time before 1970 cannot be encoded");
        return -1;
    }
    int root = parent_id == Py_None || PyBytes_GET_SIZE(parent_id) == 0;
    if (reserve(out, 80) < 0) {
        return -1;
    }
    unsigned char *to = out->at + out->size;
    *to++ = 0x12;
    *length_at = (size_t)(to - out->at);
    to += 2;
    *to++ = 0x0A;
    *to++ = 16;
    memcpy(to, trace_id, 16);
    to += 16;
    if (!root) {
        *to++ = 0x22;
        *to++ = 8;
        memcpy(to, PyBytes_AS_STRING(parent_id), 8);
        to += 8;
    }
    *to++ = 0x12;
    *to++ = 8;
    memcpy(to, span_id, 8);
    to += 8;
    *to++ = 0x39;
    to = write_fixed64(to, (uint64_t)start_ns);
    *to++ = 0x41;
    to = write_fixed64(to, (uint64_t)end_ns);
    out->size = (size_t)(to - out->at);
    return 0;
}

static int
end_span(Out *out, size_t length_at)
{
    size_t size = out->size - length_at - 2, width = varint_size(size);
    if (reserve(out, 10) < 0) {
        return -1;
    }
    if (width != 2) {
        memmove(out->at + length_at + width, out->at + length_at + 2, size);
        out->size = out->size - 2 + width;
    }
    write_varint(out->at + length_at, size);
    return 0;
}

static int
write_stage(Out *out, Stage *stage, PyObject *record, const char *trace_id, PyObject *record_id, const char *fresh,
            int64_t anchor)
{
    PyObject *parent_id = NULL, *parent = stage->parent;
    if (parent == record) {
        parent_id = Py_NewRef(record_id);
    }
    else if (parent == NULL || parent == Py_None) {
        parent_id = Py_NewRef(empty_bytes);
    }
    else {
        parent_id = PyObject_GetAttr(parent, s_span_id);
        if (!is_id(parent_id, 8)) {
            Py_XDECREF(parent_id);
            return -1;
        }
    }
    /* An id that a child or a callee has seen stays; most stages have had no need for one. */
    PyObject *own = Py_XNewRef(stage->own_id);
    int has_own = own != NULL && PyObject_IsTrue(own) == 1;
    size_t length_at = 0;
    int done = -1;
    if (!has_own || is_id(own, 8)) {
        done = begin_span(out, trace_id, parent_id, has_own ? PyBytes_AS_STRING(own) : fresh,
                          stage->start_ns + anchor, stage->end_ns + anchor, &length_at);
    }
    Py_DECREF(parent_id);
    Py_XDECREF(own);
    if (done < 0) {
        return -1;
    }
    PyObject *name = Py_NewRef(stage->name != NULL ? stage->name : Py_None);
    PyObject *head = Py_XNewRef(PyDict_GetItemWithError(stage_heads, name));
    if (head == NULL && !PyErr_Occurred()) {
        head = PyObject_CallOneArg(make_stage_head, name);
    }
    Py_DECREF(name);
    if (write_result(out, head) < 0) {
        return -1;
    }
    PyObject *attributes = Py_XNewRef(stage->attributes);
    if (attributes != NULL && attributes != Py_None) {
        done = write_pairs(out, attributes);
    }
    Py_XDECREF(attributes);
    if (done < 0) {
        return -1;
    }
    PyObject *error = Py_XNewRef(stage->error);
    int failed = error == NULL ? 0 : PyObject_IsTrue(error);
    if (failed > 0) {
        failed = write_result(out, PyObject_CallOneArg(make_status, error));
    }
    Py_XDECREF(error);
    return failed < 0 ? -1 : end_span(out, length_at);
}

/* The spans of a record's stages. `fresh` holds 8 bytes for each: more than those are not written. */
static int
write_stages(Out *out, PyObject *record, PyObject *stages, const char *trace_id, PyObject *span_id, PyObject *fresh,
             int64_t anchor)
{
    /* A stage that has children gets its id before it is written, whichever of them ended first. */
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(stages); i++) {
        PyObject *parent = is_stage(PyList_GET_ITEM(stages, i)) ? ((Stage *)PyList_GET_ITEM(stages, i))->parent : NULL;
        if (is_stage(parent)) {
            Py_INCREF(parent);
            PyObject *id = PyObject_GetAttr(parent, s_span_id);
            Py_DECREF(parent);
            if (id == NULL) {
                return -1;
            }
            Py_DECREF(id);
        }
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(stages) && 8 * (i + 1) <= PyBytes_GET_SIZE(fresh); i++) {
        PyObject *stage = PyList_GET_ITEM(stages, i);
        if (!is_stage(stage)) {
            PyErr_SetString(PyExc_TypeError, "encode_request() expected stages");
            return -1;
        }
        Py_INCREF(stage);
        int done = write_stage(out, (Stage *)stage, record, trace_id, span_id, PyBytes_AS_STRING(fresh) + 8 * i, anchor);
        Py_DECREF(stage);
        if (done < 0) {
            return -1;
        }
    }
    return 0;
}

static int
read_ns(PyObject *record, PyObject *name, int64_t *to)
{
    PyObject *found = PyObject_GetAttr(record, name);
    *to = found == NULL ? -1 : PyLong_AsLongLong(found);
    Py_XDECREF(found);
    return *to == -1 && PyErr_Occurred() ? -1 : 0;
}

/* encode_request(record, head, attributes, status, fresh_ids, anchor_ns) -> bytes */
static PyObject *
encode_request(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 6 || make_pair == NULL) {
        PyErr_SetString(PyExc_TypeError, "encode_request() expected 6 arguments, after use_encoders()");
        return NULL;
    }
    PyObject *record = args[0], *result = NULL;
    int64_t anchor = PyLong_AsLongLong(args[5]), start_ns, end_ns;
    if ((anchor == -1 && PyErr_Occurred()) || read_ns(record, s_start_ns, &start_ns) < 0
        || read_ns(record, s_end_ns, &end_ns) < 0) {
        return NULL;
    }
    PyObject *trace_id = PyObject_GetAttr(record, s_trace_id);
    PyObject *span_id = PyObject_GetAttr(record, s_span_id);
    PyObject *parent_id = PyObject_GetAttr(record, s_parent_span_id);
    PyObject *stages = PyObject_GetAttr(record, s_stages);
    Out out;
    out.at = out.own;
    out.room = sizeof out.own;
    out.size = 0;
    size_t length_at;
    if (span_id == NULL || stages == NULL || !is_id(trace_id, 16) || !is_id(span_id, 8) || parent_id == NULL
        || !PyBytes_CheckExact(parent_id) || (PyBytes_GET_SIZE(parent_id) && !is_id(parent_id, 8))
        || !PyList_CheckExact(stages) || !PyBytes_CheckExact(args[4])) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "encode_request() expected a Record");
        }
        goto end;
    }
    if (begin_span(&out, PyBytes_AS_STRING(trace_id), parent_id, PyBytes_AS_STRING(span_id), start_ns + anchor,
                   end_ns + anchor, &length_at) < 0
        || write_object(&out, args[1]) < 0 || write_pairs(&out, args[2]) < 0 || write_object(&out, args[3]) < 0
        || end_span(&out, length_at) < 0) {
        goto end;
    }
    if (write_stages(&out, record, stages, PyBytes_AS_STRING(trace_id), span_id, args[4], anchor) < 0) {
        goto end;
    }
    result = PyBytes_FromStringAndSize((const char *)out.at, (Py_ssize_t)out.size);
end:
    if (out.at != out.own) {
        PyMem_Free(out.at);
    }
    Py_XDECREF(trace_id);
    Py_XDECREF(span_id);
    Py_XDECREF(parent_id);
    Py_XDECREF(stages);
    return result;
}

static PyObject *
use_encoders(PyObject *module, PyObject *args)
{
    PyObject *heads, *head, *pair, *status, *block;
    if (!PyArg_ParseTuple(args, "O!OOOO:use_encoders", &PyDict_Type, &heads, &head, &pair, &status, &block)) {
        return NULL;
    }
    Py_XSETREF(stage_heads, Py_NewRef(heads));
    Py_XSETREF(make_stage_head, Py_NewRef(head));
    Py_XSETREF(make_pair, Py_NewRef(pair));
    Py_XSETREF(make_status, Py_NewRef(status));
    Py_XSETREF(draw_block, Py_NewRef(block));
    Py_RETURN_NONE;
}

/* RecordBase ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    PyObject *name, *kind, *trace_id, *span_id, *parent_span_id, *trace_state, *sampled, *weight, *outcome, *error, *folded,
        *streaming, *tail, *content, *engine, *attributes, *stages, *times, *waits, *weak;
    long long start_ns, end_ns, first_ns, answer_ns;
} Record;

#define SERVER 2
#define MAX_PATH 200 /* gateway.py */

/* 64 random bits of ids.py's generator, so that both twins draw the same ids from one seed. */
static int
draw(uint64_t *bits)
{
    static PyObject *sixty_four;
    if (sixty_four == NULL && (sixty_four = PyLong_FromLong(64)) == NULL) {
        return -1;
    }
    PyObject *number = PyObject_CallOneArg(random_bits, sixty_four);
    *bits = number == NULL ? 0 : PyLong_AsUnsignedLongLong(number);
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

static void
write_big_endian(unsigned char *to, uint64_t bits)
{
    for (int byte = 0; byte < 8; byte++) {
        to[byte] = (unsigned char)(bits >> (56 - 8 * byte));
    }
}

/* ids.span_id and ids.trace_id */
static PyObject *
new_id(int long_one)
{
    uint64_t low, high = 0;
    unsigned char id[16];
    if (draw(&low) < 0 || (long_one && draw(&high) < 0)) {
        return NULL;
    }
    low = low || high ? low : 1;
    write_big_endian(id, high);
    write_big_endian(id + 8, low);
    return PyBytes_FromStringAndSize((const char *)(long_one ? id : id + 8), long_one ? 16 : 8);
}

/* Everything that RecordBase.__init__ does; 0 or -1 with an error. */
static int
fill_record(Record *self, PyObject *name, PyObject *kind, PyObject *parent, PyObject *sample, long long start_ns)
{
    static PyObject *one;
    if (one == NULL && (one = PyLong_FromLong(1)) == NULL) {
        return -1;
    }
    int64_t now = start_ns;
    if (!now && now_ns(&now) < 0) {
        return -1;
    }
    self->start_ns = now;
    Py_XSETREF(self->name, Py_NewRef(name));
    Py_XSETREF(self->kind, Py_NewRef(kind));
    Py_XSETREF(self->span_id, new_id(0));
    Py_XSETREF(self->attributes, PyDict_New());
    Py_XSETREF(self->stages, PyList_New(0));
    Py_XSETREF(self->times, marks_type->tp_alloc(marks_type, 0));
    if (self->span_id == NULL || self->attributes == NULL || self->stages == NULL || self->times == NULL) {
        return -1;
    }
    PyObject *engine = PyDict_GetItemWithError(record_module, s_engine_of_new);
    if (engine == NULL && PyErr_Occurred()) {
        return -1;
    }
    Py_XSETREF(self->engine, Py_XNewRef(engine));
    if (parent == Py_None) {
        Py_XSETREF(self->trace_id, new_id(1));
        if (self->trace_id == NULL) {
            return -1;
        }
        int every = PyObject_RichCompareBool(sample, one, Py_EQ);
        if (every) {
            return every < 0 ? -1 : 0;
        }
        PyObject *sampled = PyObject_CallFunctionObjArgs(is_chosen, self->trace_id, sample, NULL);
        if (sampled == NULL) {
            return -1;
        }
        Py_XSETREF(self->sampled, sampled);
        Py_XSETREF(self->weight, Py_NewRef(sample));
        return 0;
    }
    PyObject *trace_id = PyObject_GetAttr(parent, s_trace_id), *span_id = PyObject_GetAttr(parent, s_span_id);
    PyObject *sampled = PyObject_GetAttr(parent, s_sampled), *state = PyObject_GetAttr(parent, s_trace_state);
    int done = trace_id == NULL || span_id == NULL || sampled == NULL || state == NULL ? -1 : 0;
    if (done == 0) {
        Py_XSETREF(self->trace_id, Py_NewRef(trace_id));
        Py_XSETREF(self->parent_span_id, Py_NewRef(span_id));
        Py_XSETREF(self->sampled, Py_NewRef(sampled));
        done = PyObject_IsTrue(state);
        if (done > 0) {
            Py_XSETREF(self->trace_state, Py_NewRef(state));
            PyObject *weight = PyObject_CallOneArg(read_weight, state);
            done = weight == NULL ? -1 : 0;
            if (weight != NULL) {
                Py_XSETREF(self->weight, weight);
            }
        }
    }
    Py_XDECREF(trace_id);
    Py_XDECREF(span_id);
    Py_XDECREF(sampled);
    Py_XDECREF(state);
    return done;
}

static PyObject *
record_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static PyObject *one, *ok;
    if (one == NULL && (one = PyLong_FromLong(1)) == NULL) {
        return NULL;
    }
    if (ok == NULL && (ok = PyUnicode_InternFromString("ok")) == NULL) {
        return NULL;
    }
    Record *self = (Record *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->parent_span_id = Py_NewRef(empty_bytes);
        self->trace_state = Py_NewRef(empty_text);
        self->sampled = Py_NewRef(Py_True);
        self->weight = Py_NewRef(one);
        self->outcome = Py_NewRef(ok);
        self->error = Py_NewRef(empty_text);
    }
    return (PyObject *)self;
}

static int
record_init(Record *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "kind", "parent", "sample", "start_ns", NULL};
    PyObject *name, *kind = NULL, *parent = Py_None, *sample = NULL;
    long long start_ns = 0;
    if (random_bits == NULL) {
        PyErr_SetString(PyExc_TypeError, "RecordBase: expected use_requests() first");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOOL:Record", names, &name, &kind, &parent, &sample, &start_ns)) {
        return -1;
    }
    kind = kind == NULL ? PyLong_FromLong(SERVER) : Py_NewRef(kind);
    sample = sample == NULL ? PyLong_FromLong(1) : Py_NewRef(sample);
    int done = kind == NULL || sample == NULL ? -1 : fill_record(self, name, kind, parent, sample, start_ns);
    Py_XDECREF(kind);
    Py_XDECREF(sample);
    return done;
}

#define RECORD_FIELDS(each)                                                                                              \
    each(name) each(kind) each(trace_id) each(span_id) each(parent_span_id) each(trace_state) each(sampled) each(weight) \
    each(outcome) each(error) each(folded) each(streaming) each(tail) each(content) each(engine) each(attributes)        \
    each(stages) each(times) each(waits)

static int
record_traverse(Record *self, visitproc visit, void *arg)
{
#define EACH(field) Py_VISIT(self->field);
    RECORD_FIELDS(EACH)
#undef EACH
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int
record_clear(Record *self)
{
#define EACH(field) Py_CLEAR(self->field);
    RECORD_FIELDS(EACH)
#undef EACH
    return 0;
}

static void
record_dealloc(Record *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weak != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    record_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef record_members[] = {
#define EACH(field) {#field, T_OBJECT, offsetof(Record, field), 0, NULL},
    RECORD_FIELDS(EACH)
#undef EACH
    {"start_ns", T_LONGLONG, offsetof(Record, start_ns), 0, NULL},
    {"end_ns", T_LONGLONG, offsetof(Record, end_ns), 0, NULL},
    {"first_ns", T_LONGLONG, offsetof(Record, first_ns), 0, NULL},
    {"answer_ns", T_LONGLONG, offsetof(Record, answer_ns), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Record, weak), READONLY, NULL},
    {NULL},
};

static PyType_Slot record_slots[] = {
    {Py_tp_new, record_new}, {Py_tp_init, record_init}, {Py_tp_dealloc, record_dealloc},
    {Py_tp_traverse, record_traverse}, {Py_tp_clear, record_clear}, {Py_tp_members, record_members}, {0, NULL},
};

static PyType_Spec record_spec = {
    "tailtrace.instrumentation._fast.RecordBase", sizeof(Record), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, record_slots,
};

static PyObject *
use_requests(PyObject *module, PyObject *args)
{
    PyObject *bits, *sampled, *weight, *names;
    if (!PyArg_ParseTuple(args, "OOOO!:use_requests", &bits, &sampled, &weight, &PyDict_Type, &names)) {
        return NULL;
    }
    Py_XSETREF(random_bits, Py_NewRef(bits));
    Py_XSETREF(is_chosen, Py_NewRef(sampled));
    Py_XSETREF(read_weight, Py_NewRef(weight));
    Py_XSETREF(record_module, Py_NewRef(names));
    Py_RETURN_NONE;
}

/* BufferBase ------------------------------------------------------------------------------------------------------ */

/* buffer.py: what an item holds in memory, roughly. */
#define RECORD_BYTES 1200
#define STAGE_BYTES 260
#define MARK_BYTES 40
#define TAIL_BYTES 4096

typedef struct {
    PyObject_HEAD
    PyObject **items; /* a ring: `count` of them from `first` on */
    size_t first, count, room;
    PyObject *lose, *wake;
    long long max_spans, max_bytes, wake_spans, spans, bytes;
    char woken;
} Buffer;

/* buffer.weigh */
static int
weigh(PyObject *item, long long *spans, long long *bytes)
{
    *spans = 1;
    *bytes = STAGE_BYTES;
    if (!Py_IS_TYPE(item, record_type)) {
        return 0;
    }
    Record *record = (Record *)item;
    Py_ssize_t stages = record->stages == NULL ? -1 : PyObject_Size(record->stages);
    Py_ssize_t marks = record->times == NULL ? -1 : PyObject_Size(record->times);
    if (stages < 0 || marks < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a record without stages or times");
        }
        return -1;
    }
    *spans = 1 + stages;
    *bytes = RECORD_BYTES + STAGE_BYTES * (long long)stages + MARK_BYTES * (long long)marks;
    if (record->tail != NULL && record->tail != Py_None) {
        *bytes += TAIL_BYTES;
    }
    if (record->content != NULL && record->content != Py_None) {
        PyObject *size = PyObject_GetAttr(record->content, s_size);
        long long held = size == NULL ? -1 : PyLong_AsLongLong(size);
        Py_XDECREF(size);
        if (held == -1 && PyErr_Occurred()) {
            return -1;
        }
        *bytes += held;
    }
    return 0;
}

/* The oldest item, with its weight taken off. What is weighed here is as it was put in: nothing changes a record that has
 * ended before it is encoded. */
static PyObject *
pop_oldest(Buffer *self, long long *spans)
{
    PyObject *item = self->items[self->first];
    long long bytes;
    if (weigh(item, spans, &bytes) < 0) {
        PyErr_Clear();
        *spans = 1;
        bytes = 0;
    }
    self->first = (self->first + 1) % self->room;
    self->count--;
    self->spans = self->count ? self->spans - *spans : 0;
    self->bytes = self->count ? self->bytes - bytes : 0;
    return item;
}

static PyObject *
buffer_put(Buffer *self, PyObject *item)
{
    long long spans, bytes, lost = 0;
    if (weigh(item, &spans, &bytes) < 0) {
        return NULL;
    }
    if (self->count == self->room) {
        size_t room = self->room ? self->room * 2 : 64;
        PyObject **items = PyMem_Malloc(room * sizeof(PyObject *));
        if (items == NULL) {
            return PyErr_NoMemory();
        }
        for (size_t i = 0; i < self->count; i++) {
            items[i] = self->items[(self->first + i) % self->room];
        }
        PyMem_Free(self->items);
        self->items = items;
        self->room = room;
        self->first = 0;
    }
    self->items[(self->first + self->count++) % self->room] = Py_NewRef(item);
    self->spans += spans;
    self->bytes += bytes;
    while (self->count && (self->spans > self->max_spans || self->bytes > self->max_bytes)) {
        PyObject *oldest = pop_oldest(self, &spans);
        lost += spans;
        /* May run anybody's destructor, which may put: nothing is half done here. */
        Py_DECREF(oldest);
    }
    if (lost) {
        PyObject *told = PyObject_CallFunction(self->lose, "sL", "full", lost);
        if (told == NULL) {
            return NULL;
        }
        Py_DECREF(told);
    }
    if (self->spans >= self->wake_spans && !self->woken) {
        self->woken = 1;
        PyObject *told = PyObject_CallOneArg(self->wake, Py_None);
        if (told == NULL) {
            return NULL;
        }
        Py_DECREF(told);
    }
    Py_RETURN_NONE;
}

static PyObject *
buffer_take(Buffer *self, PyObject *limit)
{
    long long most = PyLong_AsLongLong(limit), count = 0;
    if (most == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *taken = PyList_New(0);
    self->woken = 0;
    while (taken != NULL && self->count && count < most) {
        long long spans;
        PyObject *item = pop_oldest(self, &spans);
        count += spans;
        PyObject *pair = Py_BuildValue("NL", item, spans);
        if (pair == NULL || PyList_Append(taken, pair) < 0) {
            Py_CLEAR(taken);
        }
        Py_XDECREF(pair);
    }
    return taken;
}

static PyObject *
buffer_clear_items(Buffer *self, PyObject *Py_UNUSED(ignored))
{
    long long lost = self->spans, spans;
    while (self->count) {
        Py_DECREF(pop_oldest(self, &spans));
    }
    return PyLong_FromLongLong(lost);
}

static int
buffer_init(Buffer *self, PyObject *args, PyObject *kwargs)
{
    PyObject *lose, *wake;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "BufferBase() takes no names");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "LLLOO:BufferBase", &self->max_spans, &self->max_bytes, &self->wake_spans, &lose, &wake)) {
        return -1;
    }
    Py_XSETREF(self->lose, Py_NewRef(lose));
    Py_XSETREF(self->wake, Py_NewRef(wake));
    return 0;
}

static int
buffer_traverse(Buffer *self, visitproc visit, void *arg)
{
    for (size_t i = 0; i < self->count; i++) {
        Py_VISIT(self->items[(self->first + i) % self->room]);
    }
    Py_VISIT(self->lose);
    Py_VISIT(self->wake);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int
buffer_clear(Buffer *self)
{
    long long spans;
    while (self->count) {
        Py_DECREF(pop_oldest(self, &spans));
    }
    Py_CLEAR(self->lose);
    Py_CLEAR(self->wake);
    return 0;
}

static void
buffer_dealloc(Buffer *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    buffer_clear(self);
    PyMem_Free(self->items);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef buffer_methods[] = {
    {"put", (PyCFunction)buffer_put, METH_O, NULL},
    {"take", (PyCFunction)buffer_take, METH_O, NULL},
    {"clear", (PyCFunction)buffer_clear_items, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef buffer_members[] = {
    {"spans", T_LONGLONG, offsetof(Buffer, spans), READONLY, NULL},
    {"bytes", T_LONGLONG, offsetof(Buffer, bytes), READONLY, NULL},
    {NULL},
};

static PyType_Slot buffer_slots[] = {
    {Py_tp_init, buffer_init}, {Py_tp_dealloc, buffer_dealloc}, {Py_tp_traverse, buffer_traverse},
    {Py_tp_clear, buffer_clear}, {Py_tp_methods, buffer_methods}, {Py_tp_members, buffer_members}, {0, NULL},
};

static PyType_Spec buffer_spec = {
    "tailtrace.instrumentation._fast.BufferBase", sizeof(Buffer), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, buffer_slots,
};

/* Entered --------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *own, *others; /* the tokens of CURRENT and of OpenTelemetry's context */
} Entered;

/* OpenTelemetry's context with the request's span in it. */
static PyObject *
context_with(PyObject *record)
{
    PyObject *around = NULL, *result = NULL;
    if (PyContextVar_Get(otel_current, NULL, &around) < 0) {
        return NULL;
    }
    PyObject *held = around != NULL && PyDict_Check(around) && PyDict_GET_SIZE(around) ? PyDict_Copy(around) : PyDict_New();
    PyObject *span = held == NULL ? NULL : PyObject_CallOneArg(request_span, record);
    if (span != NULL && PyDict_SetItem(held, span_key, span) == 0) {
        result = PyObject_CallOneArg(otel_context, held);
    }
    Py_XDECREF(span);
    Py_XDECREF(held);
    Py_XDECREF(around);
    return result;
}

static PyObject *
entered_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *record;
    static char *names[] = {"record", NULL};
    if (otel_current == NULL) {
        PyErr_SetString(PyExc_TypeError, "Entered: expected use_context() first");
        return NULL;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Entered", names, &record)) {
        return NULL;
    }
    Entered *self = (Entered *)type->tp_alloc(type, 0);
    PyObject *context = self == NULL ? NULL : context_with(record);
    if (context != NULL && (self->own = PyContextVar_Set(current, record)) != NULL) {
        self->others = PyContextVar_Set(otel_current, context);
    }
    Py_XDECREF(context);
    if (self != NULL && self->others == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* Undo a set, also where that happened in a context that is gone, or has been undone. */
static int
undo(PyObject *variable, PyObject *token)
{
    if (token == NULL || PyContextVar_Reset(variable, token) == 0) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}

static PyObject *
entered_leave(Entered *self, PyObject *Py_UNUSED(ignored))
{
    return undo(current, self->own) < 0 || undo(otel_current, self->others) < 0 ? NULL : Py_NewRef(Py_None);
}

static int
entered_traverse(Entered *self, visitproc visit, void *arg)
{
    Py_VISIT(self->own);
    Py_VISIT(self->others);
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int
entered_clear(Entered *self)
{
    Py_CLEAR(self->own);
    Py_CLEAR(self->others);
    return 0;
}

static void
entered_dealloc(Entered *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    entered_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef entered_methods[] = {
    {"leave", (PyCFunction)entered_leave, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot entered_slots[] = {
    {Py_tp_new, entered_new}, {Py_tp_dealloc, entered_dealloc}, {Py_tp_traverse, entered_traverse},
    {Py_tp_clear, entered_clear}, {Py_tp_methods, entered_methods}, {0, NULL},
};

static PyType_Spec entered_spec = {
    "tailtrace.instrumentation._fast.Entered", sizeof(Entered), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, entered_slots,
};

/* use_context(variable, Context, RequestSpan, key, parse_traceparent, tracestate_of) */
static PyObject *
use_context(PyObject *module, PyObject *args)
{
    PyObject *variable, *context, *span, *key, *parse, *state;
    if (!PyArg_ParseTuple(args, "OOOOOO:use_context", &variable, &context, &span, &key, &parse, &state)) {
        return NULL;
    }
    if (!PyContextVar_CheckExact(variable)) {
        PyErr_SetString(PyExc_TypeError, "use_context() expected a ContextVar");
        return NULL;
    }
    Py_XSETREF(otel_current, Py_NewRef(variable));
    Py_XSETREF(otel_context, Py_NewRef(context));
    Py_XSETREF(request_span, Py_NewRef(span));
    Py_XSETREF(span_key, Py_NewRef(key));
    Py_XSETREF(parse_caller, Py_NewRef(parse));
    Py_XSETREF(write_state, Py_NewRef(state));
    Py_RETURN_NONE;
}

/* Begin ----------------------------------------------------------------------------------------------------------- */

/* What a request's headers say, borrowed. */
typedef struct {
    PyObject *traceparent, *tracestate, *size, *request_id, *region;
    int in_pieces;
} Heads;

static int
is_name(PyObject *name, const char *text, Py_ssize_t size)
{
    return PyBytes_GET_SIZE(name) == size && memcmp(PyBytes_AS_STRING(name), text, (size_t)size) == 0;
}

/* The headers without those of the trace: a new list; NULL without an error where they are not of the usual kind. */
static PyObject *
read_headers(PyObject *headers, PyObject *region_header, Heads *heads)
{
    PyObject *kept = PyList_New(0);
    Py_ssize_t region_size = PyBytes_GET_SIZE(region_header);
    for (Py_ssize_t i = 0; kept != NULL && i < PyList_GET_SIZE(headers); i++) {
        PyObject *pair = PyList_GET_ITEM(headers, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 0))
            || !PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 1))) {
            Py_CLEAR(kept);
            break;
        }
        PyObject *name = PyTuple_GET_ITEM(pair, 0), *value = PyTuple_GET_ITEM(pair, 1);
        if (is_name(name, "traceparent", 11)) {
            heads->traceparent = value;
            continue;
        }
        if (is_name(name, "tracestate", 10)) {
            heads->tracestate = value;
            continue;
        }
        if (is_name(name, "content-length", 14)) {
            heads->size = value;
        }
        else if (is_name(name, "x-request-id", 12)) {
            heads->request_id = value;
        }
        else if (is_name(name, "transfer-encoding", 17)) {
            heads->in_pieces = 1;
        }
        else if (region_size && is_name(name, PyBytes_AS_STRING(region_header), region_size)) {
            heads->region = value;
        }
        if (PyList_Append(kept, pair) < 0) {
            Py_CLEAR(kept);
        }
    }
    return kept;
}

/* context.traceparent_of as bytes */
static PyObject *
traceparent(Record *record, int sampled)
{
    static const char digits[] = "0123456789abcdef";
    char text[55];
    if (!is_id(record->trace_id, 16) || !is_id(record->span_id, 8)) {
        return NULL;
    }
    const unsigned char *trace_id = (const unsigned char *)PyBytes_AS_STRING(record->trace_id);
    const unsigned char *span_id = (const unsigned char *)PyBytes_AS_STRING(record->span_id);
    memcpy(text, "00-", 3);
    for (int i = 0; i < 16; i++) {
        text[3 + 2 * i] = digits[trace_id[i] >> 4];
        text[4 + 2 * i] = digits[trace_id[i] & 15];
    }
    text[35] = '-';
    for (int i = 0; i < 8; i++) {
        text[36 + 2 * i] = digits[span_id[i] >> 4];
        text[37 + 2 * i] = digits[span_id[i] & 15];
    }
    memcpy(text + 52, sampled ? "-01" : "-00", 3);
    return PyBytes_FromStringAndSize(text, 55);
}

/* Append (name, value) to a list; the value's reference is taken. */
static int
append_header(PyObject *headers, PyObject *name, PyObject *value)
{
    PyObject *pair = value == NULL ? NULL : PyTuple_Pack(2, name, value);
    Py_XDECREF(value);
    int done = pair == NULL ? -1 : PyList_Append(headers, pair);
    Py_XDECREF(pair);
    return done;
}

static int
set_text(PyObject *record, const char *name, PyObject *value)
{
    PyObject *text = PyUnicode_DecodeLatin1(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), NULL);
    PyObject *set = text == NULL ? NULL : PyObject_CallMethod(record, "set", "sO", name, text);
    Py_XDECREF(text);
    Py_XDECREF(set);
    return set == NULL ? -1 : 0;
}

/* The decimal number in `size`; -1 where it is none, or long. */
static long long
number_of(PyObject *size)
{
    Py_ssize_t length = PyBytes_GET_SIZE(size);
    const char *text = PyBytes_AS_STRING(size);
    long long number = 0;
    if (length < 1 || length > 17) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }
        number = number * 10 + (text[i] - '0');
    }
    return number;
}

static int
fill_attributes(Record *record, const Heads *heads, int64_t now)
{
    if (record->start_ns != now) {
        PyObject *marked = PyObject_CallMethod((PyObject *)record, "mark", "sLL", "net_in", record->start_ns, (long long)now);
        if (marked == NULL) {
            return -1;
        }
        Py_DECREF(marked);
    }
    long long size = heads->size == NULL ? -1 : number_of(heads->size);
    if (size >= 0) {
        PyObject *number = PyLong_FromLongLong(size);
        int done = number == NULL ? -1 : PyDict_SetItem(record->attributes, s_request_size, number);
        Py_XDECREF(number);
        if (done < 0) {
            return -1;
        }
    }
    if (heads->request_id != NULL && set_text((PyObject *)record, "request_id", heads->request_id) < 0) {
        return -1;
    }
    return heads->region == NULL ? 0 : set_text((PyObject *)record, "client.region", heads->region);
}

/* The caller that the headers name, a new reference; None where they name none. */
static PyObject *
caller_of(const Heads *heads)
{
    if (heads->traceparent == NULL || PyBytes_GET_SIZE(heads->traceparent) == 0) {
        return Py_NewRef(Py_None);
    }
    PyObject *from = heads->tracestate == NULL ? empty_bytes : heads->tracestate;
    PyObject *state = PyUnicode_DecodeLatin1(PyBytes_AS_STRING(from), PyBytes_GET_SIZE(from), NULL);
    PyObject *caller =
        state == NULL ? NULL : PyObject_CallFunctionObjArgs(parse_caller, heads->traceparent, state, NULL);
    Py_XDECREF(state);
    return caller;
}

/* begin(scope, sample, region_header) -> gateway.begin's three, or None where that has to look: another library's span is
 * around, or the scope is of another kind. */
static PyObject *
begin(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    static PyObject *server;
    if (count != 3 || !PyBytes_CheckExact(args[2]) || otel_current == NULL || random_bits == NULL || record_type == NULL) {
        PyErr_SetString(PyExc_TypeError, "begin() expected a scope, a number and bytes");
        return NULL;
    }
    if (server == NULL && (server = PyLong_FromLong(SERVER)) == NULL) {
        return NULL;
    }
    PyObject *scope = args[0], *around = NULL;
    PyObject *headers = PyDict_CheckExact(scope) ? PyDict_GetItemWithError(scope, s_headers) : NULL;
    if (headers == NULL || !PyList_CheckExact(headers)) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    if (PyContextVar_Get(otel_current, NULL, &around) < 0) {
        return NULL;
    }
    int alone = around == NULL || (PyDict_Check(around) && PyDict_GET_SIZE(around) == 0);
    Py_XDECREF(around);
    int64_t now, start_ns;
    if (now_ns(&now) < 0) {
        return NULL;
    }
    start_ns = now;
    PyObject *began = PyDict_GetItemWithError(scope, s_begin_ns), *method = PyDict_GetItemWithError(scope, s_method);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (began != NULL) {
        start_ns = PyLong_CheckExact(began) ? PyLong_AsLongLong(began) : 0;
        if (start_ns <= 0) {
            PyErr_Clear();
            alone = 0;
        }
    }
    Heads heads = {0};
    PyObject *inside = alone ? read_headers(headers, args[2], &heads) : NULL;
    if (inside == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *result = NULL, *inner = NULL, *caller = caller_of(&heads);
    PyObject *made = caller == NULL ? NULL : record_new(record_type, NULL, NULL);
    Record *record = (Record *)made;
    if (made == NULL
        || fill_record(record, method == NULL ? s_websocket : method, server, caller, args[1], start_ns) < 0
        || fill_attributes(record, &heads, now) < 0) {
        goto end;
    }
    int sampled = PyObject_IsTrue(record->sampled);
    if (sampled < 0 || append_header(inside, b_traceparent, traceparent(record, sampled)) < 0) {
        goto end;
    }
    int stated = PyObject_IsTrue(record->trace_state);
    if (stated == 0) {
        long weight = PyLong_AsLong(record->weight);
        stated = weight == -1 && PyErr_Occurred() ? -1 : weight > 1;
    }
    if (stated > 0) {
        PyObject *state = PyObject_CallOneArg(write_state, made);
        PyObject *encoded = state == NULL ? NULL : PyUnicode_AsEncodedString(state, "latin-1", "replace");
        Py_XDECREF(state);
        stated = append_header(inside, b_tracestate, encoded);
    }
    if (stated < 0) {
        goto end;
    }
    inner = PyDict_Copy(scope);
    if (inner != NULL && PyDict_SetItem(inner, s_headers, inside) == 0 && PyDict_SetItem(inner, s_seen, made) == 0) {
        int has_body = heads.in_pieces || (heads.size != NULL && !is_name(heads.size, "0", 1));
        result = PyTuple_Pack(3, made, inner, has_body ? Py_True : Py_False);
    }
end:
    Py_XDECREF(inner);
    Py_XDECREF(made);
    Py_XDECREF(caller);
    Py_DECREF(inside);
    return result;
}

/* Frames ---------------------------------------------------------------------------------------------------------- */

static int
is_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Past `"key" : `, where `at` stands behind the key; NULL where no colon follows. */
static const char *
past_colon(const char *at, const char *end)
{
    for (; at < end && is_space((unsigned char)*at); at++) {
    }
    if (at == end || *at++ != ':') {
        return NULL;
    }
    for (; at < end && is_space((unsigned char)*at); at++) {
    }
    return at < end ? at : NULL;
}

/* sse._CHAT_TEXT: "delta": {..."content": "x, with no brace between. */
static int
has_chat_text(const char *at, const char *end)
{
    while ((at = memmem(at, (size_t)(end - at), "\"delta\"", 7)) != NULL) {
        at += 7;
        const char *inside = past_colon(at, end);
        if (inside == NULL || *inside++ != '{') {
            continue;
        }
        const char *quote = inside;
        for (; quote < end && *quote != '{' && *quote != '}'; quote++) {
            if (*quote == '"' && end - quote > 9 && memcmp(quote, "\"content\"", 9) == 0) {
                const char *value = past_colon(quote + 9, end);
                if (value != NULL && *value == '"' && value + 1 < end && value[1] != '"') {
                    return 1;
                }
            }
        }
    }
    return 0;
}

static int
is_one_chat_text(const char *body, Py_ssize_t size)
{
    if (size < 5 || memcmp(body, "data:", 5) != 0) {
        return 0;
    }
    const char *line_end = memchr(body, '\n', (size_t)size);
    return line_end != NULL && line_end - body >= size - 2 && has_chat_text(body, body + size);
}

/* one_chat_text(body) -> sse._one_chat_text(body) */
static PyObject *
one_chat_text(PyObject *module, PyObject *body)
{
    if (!PyBytes_Check(body)) {
        return PyErr_Format(PyExc_TypeError, "one_chat_text() expected bytes, got %.100s", Py_TYPE(body)->tp_name);
    }
    return PyBool_FromLong(is_one_chat_text(PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body)));
}

static int
has_at(const char *at, const char *begin, const char *end, const char *text, size_t size)
{
    return at >= begin && end - at >= (ptrdiff_t)size && memcmp(at, text, size) == 0;
}

/* Whether one of sse._USAGE_PARTS stands in it. All but one have an underscore, which few bodies have more than one of. */
static int
names_usage(const char *body, size_t size)
{
    const char *end = body + size;
    for (const char *at = body; (at = memchr(at, '_', (size_t)(end - at))) != NULL; at++) {
        if (has_at(at, body, end, "_tokens", 7) || has_at(at - 6, body, end, "tokens_", 7)
            || has_at(at, body, end, "_count", 6) || has_at(at, body, end, "_length", 7)) {
            return 1;
        }
    }
    return memmem(body, size, "TokenCount", 10) != NULL;
}

/* Whether a body speaks of something else than the text of one chat chunk: usage, other samples, a model. */
static int
says_more(const char *body, size_t size, int model_known)
{
    if (names_usage(body, size)) {
        return 1;
    }
    if (!model_known && memmem(body, size, "\"model\"", 7)) {
        return 1;
    }
    const char *end = body + size, *at = body;
    while ((at = memmem(at, (size_t)(end - at), "\"index\"", 7)) != NULL) {
        at += 7;
        if (end - at < 2 || at[0] != ':' || at[1] != '0') {
            return 1;
        }
    }
    return 0;
}

/* How many bodies at the end are empty, where every other one is the text of one chat chunk and says no more; -1 where they
 * have to be read, -2 with an error. */
static long
empty_at_end(PyObject *given, int model_known)
{
    PyObject *messages = PySequence_Fast(given, "expected messages");
    if (messages == NULL) {
        return -2;
    }
    long empty = 0;
    for (Py_ssize_t i = 0; empty >= 0 && i < PySequence_Fast_GET_SIZE(messages); i++) {
        PyObject *message = PySequence_Fast_GET_ITEM(messages, i);
        PyObject *body = PyDict_CheckExact(message) ? PyDict_GetItemWithError(message, s_body) : message;
        if (body == NULL || !PyBytes_CheckExact(body)) {
            empty = PyErr_Occurred() ? -2 : -1;
        }
        else if (PyBytes_GET_SIZE(body) == 0) {
            empty++;
        }
        else {
            const char *text = PyBytes_AS_STRING(body);
            Py_ssize_t size = PyBytes_GET_SIZE(body);
            empty = is_one_chat_text(text, size) && !says_more(text, (size_t)size, model_known) ? 0 : -1;
        }
    }
    Py_DECREF(messages);
    return empty;
}

/* plain_tail(messages, model_known) -> empty_at_end */
static PyObject *
plain_tail(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "plain_tail() expected messages and whether the model is known");
        return NULL;
    }
    int known = PyObject_IsTrue(args[1]);
    long empty = known < 0 ? -2 : empty_at_end(args[0], known);
    return empty == -2 ? NULL : PyLong_FromLong(empty);
}

/* Whole records --------------------------------------------------------------------------------------------------- */

/* Reset after each use as far as it was used: most streams touch a few of its two thousand counts. */
static Times scratch = {.lowest = BUCKETS, .highest = -1};

static void
reset_scratch(void)
{
    if (scratch.highest >= scratch.lowest) {
        memset(scratch.counts + scratch.lowest, 0, (size_t)(scratch.highest - scratch.lowest + 1) * sizeof(uint64_t));
    }
    scratch.first_ns = scratch.last_ns = scratch.count = 0;
    scratch.lowest = BUCKETS;
    scratch.highest = -1;
    scratch.stalls = 0;
}

/* A KeyValue as write_pair makes it, of a key of less than 100 bytes. */
static int
write_own(Out *out, const char *key, const void *value, size_t size)
{
    size_t key_size = strlen(key), body = 4 + key_size + varint_size(size) - 1 + size;
    if (reserve(out, body + 12) < 0) {
        return -1;
    }
    unsigned char *to = out->at + out->size;
    *to++ = 0x4A;
    to = write_varint(to, body);
    *to++ = 0x0A;
    to = write_varint(to, key_size);
    memcpy(to, key, key_size);
    to += key_size;
    *to++ = 0x12;
    to = write_varint(to, size);
    memcpy(to, value, size);
    out->size = (size_t)(to - out->at) + size;
    return 0;
}

static int
write_own_bool(Out *out, const char *key, int value)
{
    unsigned char scalar[2] = {0x10, (unsigned char)(value != 0)};
    return write_own(out, key, scalar, 2);
}

static int
write_own_number(Out *out, const char *key, int64_t value)
{
    unsigned char scalar[11] = {0x18};
    return write_own(out, key, scalar, (size_t)(write_varint(scalar + 1, (uint64_t)value) - scalar));
}

static int
write_own_text(Out *out, const char *key, const char *text, size_t size)
{
    unsigned char head[11] = {0x0A};
    size_t head_size = (size_t)(write_varint(head + 1, size) - head);
    char *joined = PyMem_Malloc(head_size + size + 1);
    if (joined == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(joined, head, head_size);
    memcpy(joined + head_size, text, size);
    int done = write_own(out, key, joined, head_size + size);
    PyMem_Free(joined);
    return done;
}

/* What request_attributes tells of a stream's tokens. */
static int
write_tokens(Out *out, Record *record)
{
    Marks *marks = (Marks *)record->times;
    int64_t start = record->start_ns;
    int done = fold(&scratch, marks->at, marks->size);
    if (done == 0) {
        done = write_own_number(out, "tailtrace.ttft_ns", minus(record->first_ns, start));
    }
    if (done == 0 && record->answer_ns) {
        done = write_own_number(out, "tailtrace.ttft_answer_ns", minus(record->answer_ns, start));
    }
    if (done == 0) {
        done = write_own_number(out, "tailtrace.last_token_ns", minus(scratch.last_ns, start));
    }
    size_t pieces = gap_pieces(&scratch);
    if (done == 0 && pieces) {
        char *text = PyMem_Malloc(pieces * GAP_TEXT);
        if (text == NULL) {
            PyErr_NoMemory();
            done = -1;
        }
        else {
            done = write_own_text(out, "tailtrace.gaps", text, (size_t)(write_gaps(&scratch, text) - text));
            PyMem_Free(text);
        }
    }
    if (done == 0 && scratch.stalls) {
        char text[STALLS_TEXT];
        done = write_own_text(out, "tailtrace.stalls", text, (size_t)(write_stalls(&scratch, start, text) - text));
    }
    reset_scratch();
    return done;
}

static int
is_nothing(PyObject *field)
{
    return field == NULL || field == Py_None;
}

/* Whether a record is of the usual kind: nothing of it needs Python, and none of its own attributes is one of ours. */
static int
is_usual(Record *record)
{
    static const char *ours[] = {"tailtrace.request", "tailtrace.outcome", "tailtrace.streaming", "tailtrace.ttft_ns",
                                 "tailtrace.ttft_answer_ns", "tailtrace.last_token_ns", "tailtrace.gaps", "tailtrace.stalls"};
    static PyObject *keys[sizeof ours / sizeof *ours];
    PyObject *attributes = record->attributes;
    if (!is_nothing(record->content) || !is_nothing(record->folded) || attributes == NULL || !PyDict_CheckExact(attributes)
        || record->stages == NULL || !PyList_CheckExact(record->stages) || record->times == NULL
        || !Py_IS_TYPE(record->times, marks_type) || record->name == NULL || !PyUnicode_CheckExact(record->name)
        || record->outcome == NULL || !PyUnicode_CheckExact(record->outcome)
        || PyUnicode_CompareWithASCIIString(record->outcome, "error") == 0
        || PyUnicode_CompareWithASCIIString(record->outcome, "timeout") == 0 || record->error == NULL
        || !PyUnicode_CheckExact(record->error) || PyUnicode_GET_LENGTH(record->error) || record->kind == NULL
        || !PyLong_CheckExact(record->kind) || record->weight == NULL || !PyLong_CheckExact(record->weight)
        || PyLong_AsLong(record->weight) != 1
        || !(is_nothing(record->streaming) || PyBool_Check(record->streaming))) {
        PyErr_Clear();
        return 0;
    }
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        if (keys[i] == NULL && text(&keys[i], ours[i]) < 0) {
            return -1;
        }
        int held = PyDict_Contains(attributes, keys[i]);
        if (held) {
            return held < 0 ? -1 : 0;
        }
    }
    return 1;
}

/* Name and kind as otlp.span_head. 0: cannot be written here. */
static int
write_head(Out *out, Record *record)
{
    Py_ssize_t size;
    const char *name = utf8(record->name, &size);
    long kind = PyLong_AsLong(record->kind);
    if (name == NULL || (kind == -1 && PyErr_Occurred()) || kind < 0) {
        PyErr_Clear();
        return 0;
    }
    if (reserve(out, (size_t)size + 24) < 0) {
        return -1;
    }
    unsigned char *to = out->at + out->size;
    *to++ = 0x2A;
    to = write_varint(to, (uint64_t)size);
    memcpy(to, name, (size_t)size);
    to += size;
    *to++ = 0x30;
    to = write_varint(to, (uint64_t)kind);
    out->size = (size_t)(to - out->at);
    return 1;
}

static int
write_usual(Out *out, Record *record, long empty, int64_t anchor)
{
    size_t length_at, outcome_size = 0;
    if (begin_span(out, PyBytes_AS_STRING(record->trace_id), record->parent_span_id, PyBytes_AS_STRING(record->span_id),
                   record->start_ns + anchor, record->end_ns + anchor, &length_at) < 0) {
        return -1;
    }
    int done = write_head(out, record);
    if (done <= 0) {
        return done;
    }
    Py_ssize_t size;
    const char *outcome = utf8(record->outcome, &size);
    if (outcome == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    outcome_size = (size_t)size;
    Marks *marks = (Marks *)record->times;
    if (record->first_ns && PyUnicode_CompareWithASCIIString(record->outcome, "ok") == 0) {
        Py_ssize_t most = marks->size > 0 ? marks->size - 1 : 0;
        marks->size -= empty < most ? empty : most;
    }
    if (write_own_bool(out, "tailtrace.request", 1) < 0
        || write_own_text(out, "tailtrace.outcome", outcome, outcome_size) < 0
        || (!is_nothing(record->streaming)
            && write_own_bool(out, "tailtrace.streaming", record->streaming == Py_True) < 0)
        || (record->first_ns && record->streaming == Py_True && write_tokens(out, record) < 0)
        || write_pairs(out, record->attributes) < 0 || end_span(out, length_at) < 0) {
        return -1;
    }
    return 1;
}

/* encode_record(record, anchor_ns) -> encode.encode_record of a record that went its usual way, or None where that has to
 * do it; it is as it was then. */
static PyObject *
encode_record(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || record_type == NULL || !Py_IS_TYPE(args[0], record_type) || make_pair == NULL) {
        PyErr_SetString(PyExc_TypeError, "encode_record() expected a Record and nanoseconds");
        return NULL;
    }
    Record *record = (Record *)args[0];
    int64_t anchor = PyLong_AsLongLong(args[1]);
    if (anchor == -1 && PyErr_Occurred()) {
        return NULL;
    }
    int usual = is_usual(record);
    if (usual <= 0) {
        return usual < 0 ? NULL : Py_NewRef(Py_None);
    }
    if (!is_id(record->trace_id, 16) || !is_id(record->span_id, 8) || record->parent_span_id == NULL
        || !PyBytes_CheckExact(record->parent_span_id)
        || (PyBytes_GET_SIZE(record->parent_span_id) && !is_id(record->parent_span_id, 8))) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    long empty = 0;
    if (!is_nothing(record->tail)) {
        int known = PyDict_Contains(record->attributes, s_response_model);
        empty = known < 0 ? -2 : empty_at_end(record->tail, known);
        if (empty < 0) {
            return empty == -2 ? NULL : Py_NewRef(Py_None);
        }
    }
    Out out;
    out.at = out.own;
    out.room = sizeof out.own;
    out.size = 0;
    PyObject *result = NULL;
    int done = write_usual(&out, record, empty, anchor);
    if (done > 0 && PyList_GET_SIZE(record->stages)) {
        PyObject *fresh = PyObject_CallFunction(draw_block, "n", PyList_GET_SIZE(record->stages));
        PyObject *trace_id = Py_NewRef(record->trace_id), *span_id = Py_NewRef(record->span_id);
        PyObject *stages = Py_NewRef(record->stages), *none = PyList_New(0);
        if (fresh == NULL || none == NULL || !PyBytes_CheckExact(fresh)
            || write_stages(&out, args[0], stages, PyBytes_AS_STRING(trace_id), span_id, fresh, anchor) < 0) {
            done = -1;
            Py_XDECREF(none);
        }
        else {
            /* A stage knows its record: without this cut, each request would wait for the cycle collector. */
            Py_XSETREF(record->stages, none);
        }
        Py_XDECREF(fresh);
        Py_DECREF(trace_id);
        Py_DECREF(span_id);
        Py_DECREF(stages);
    }
    if (done > 0) {
        result = PyBytes_FromStringAndSize((const char *)out.at, (Py_ssize_t)out.size);
        Py_CLEAR(record->tail);
    }
    else if (done == 0) {
        result = Py_NewRef(Py_None);
    }
    if (out.at != out.own) {
        PyMem_Free(out.at);
    }
    return result;
}

/* Sender ---------------------------------------------------------------------------------------------------------- */

enum { IN_PYTHON, BEFORE_START, BEFORE_TOKENS, CLOSED };

typedef struct {
    PyObject_HEAD
    PyObject *slow, *careful, *send, *flow;
    PyObject *function, *of; /* the two parts of `send` where it is a method of Python's */
    PyObject *answer, *record;
    Marks *times;
    PyObject *kept[TAIL];
    size_t seen;
    char fast, head;
} Sender;

static PyObject *
pass_on(Sender *self, PyObject *message)
{
    if (self->function == NULL) {
        return PyObject_CallOneArg(self->send, message);
    }
    PyObject *args[3] = {NULL, self->of, message};
    return PyObject_Vectorcall(self->function, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

static void
keep(Sender *self, PyObject *message)
{
    Py_XSETREF(self->kept[self->seen % TAIL], Py_NewRef(message));
    self->seen++;
}

/* Whether a send would wait: 1, 0, or -1 with an error. */
static int
is_paused(Sender *self)
{
    PyObject *paused = PyObject_GetAttr(self->flow, s_write_paused);
    int waits = paused == Py_False ? 0 : paused == NULL ? -1 : PyObject_IsTrue(paused);
    Py_XDECREF(paused);
    return waits;
}

static int
set_ns(PyObject *object, PyObject *name, int64_t ns)
{
    PyObject *number = PyLong_FromLongLong(ns);
    int done = number == NULL ? -1 : PyObject_SetAttr(object, name, number);
    Py_XDECREF(number);
    return done;
}

static int
same_name(PyObject *name, const char *lower, Py_ssize_t size)
{
    return PyBytes_GET_SIZE(name) == size && strncasecmp(PyBytes_AS_STRING(name), lower, (size_t)size) == 0;
}

/* What Answer._begin notes of a stream of events. 1 or -1 with an error. */
static int
mark_stream(PyObject *answer, PyObject *record, PyObject *status)
{
    int64_t now;
    if (now_ns(&now) < 0 || set_ns(answer, s__start_ns, now) < 0 || PyObject_SetAttr(answer, s__status, status) < 0
        || PyObject_SetAttr(answer, s__framed, Py_True) < 0 || PyObject_SetAttr(record, s_streaming, Py_True) < 0) {
        return -1;
    }
    return 1;
}

/* Answer._begin for a stream of events that has not begun before. 1: done; 0: left to Python; -1: an error. */
static int
begin_stream(Sender *self, PyObject *message)
{
    PyObject *status = PyDict_GetItemWithError(message, s_status);
    PyObject *headers = status == NULL ? NULL : PyDict_GetItemWithError(message, s_headers);
    if (headers == NULL || !PyLong_CheckExact(status) || !PyList_CheckExact(headers)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int beyond = 0;
    long code = PyLong_AsLongAndOverflow(status, &beyond);
    int events = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(headers); i++) {
        PyObject *pair = PyList_GET_ITEM(headers, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2 || !PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 0))
            || !PyBytes_CheckExact(PyTuple_GET_ITEM(pair, 1))) {
            return 0;
        }
        PyObject *name = PyTuple_GET_ITEM(pair, 0), *value = PyTuple_GET_ITEM(pair, 1);
        if (same_name(name, "content-length", 14)) {
            return 0;
        }
        if (same_name(name, "content-type", 12)) {
            events = PyBytes_GET_SIZE(value) >= 17
                     && strncasecmp(PyBytes_AS_STRING(value), "text/event-stream", 17) == 0;
        }
    }
    return !events || beyond || code >= 400 || self->times->size ? 0 : mark_stream(self->answer, self->record, status);
}

/* Whether a body is an answer's first token and nothing else: names of models and usage are taken out by Python. */
static int
is_first_token(const char *text, size_t size)
{
    return is_one_chat_text(text, (Py_ssize_t)size) && !memmem(text, size, "\"model\"", 7) && !memmem(text, size, "usage", 5);
}

/* Record.begin_tokens and Answer._go_fast, for a body of `size` bytes. 1 or -1 with an error. */
static int
mark_first_token(PyObject *answer, PyObject *record, Marks *times, int64_t now, size_t size)
{
    PyObject *id = PyLong_FromVoidPtr(record), *length = PyLong_FromSize_t(size);
    int done = -1;
    if (id != NULL && length != NULL && set_ns(record, s_first_ns, now) == 0 && set_ns(record, s_answer_ns, now) == 0
        && PyObject_SetAttr(answer, s__size, length) == 0 && PyObject_SetAttr(answer, s__fast, Py_True) == 0
        && push(times, now) == 0 && PyDict_SetItem(streaming_now, id, record) == 0) {
        done = 1;
    }
    Py_XDECREF(id);
    Py_XDECREF(length);
    return done;
}

/* Answer._before_tokens for a body that is the first of an answer's tokens. As begin_stream. */
static int
first_token(Sender *self, PyObject *message)
{
    PyObject *body = PyDict_GetItemWithError(message, s_body), *more = PyDict_GetItemWithError(message, s_more_body);
    if (body == NULL || more != Py_True || !PyBytes_CheckExact(body) || self->times->size) {
        return PyErr_Occurred() ? -1 : 0;
    }
    size_t size = (size_t)PyBytes_GET_SIZE(body);
    if (!is_first_token(PyBytes_AS_STRING(body), size)) {
        return 0;
    }
    int waits = self->flow == Py_True ? 0 : self->flow == Py_None ? 1 : is_paused(self);
    if (waits) {
        return waits < 0 ? -1 : 0;
    }
    int64_t now;
    if (now_ns(&now) < 0 || mark_first_token(self->answer, self->record, self->times, now, size) < 0) {
        return -1;
    }
    keep(self, message);
    self->fast = 1;
    return 1;
}

/* One of the ways that Python takes. Held meanwhile: the answer may be closed in it. */
static PyObject *
by_python(PyObject *way, PyObject *message)
{
    Py_INCREF(way);
    PyObject *awaitable = PyObject_CallOneArg(way, message);
    Py_DECREF(way);
    return awaitable;
}

/* The head of a stream, where it is of the usual kind; all else is Python's. */
static PyObject *
send_head(Sender *self, PyObject *message)
{
    int done = 0;
    char head = self->head;
    self->head = IN_PYTHON;
    PyObject *kind = PyDict_CheckExact(message) ? PyDict_GetItemWithError(message, s_type) : NULL;
    if (kind != NULL && PyUnicode_CheckExact(kind)) {
        if (head == BEFORE_START && PyUnicode_CompareWithASCIIString(kind, "http.response.start") == 0) {
            done = begin_stream(self, message);
            self->head = done == 1 ? BEFORE_TOKENS : IN_PYTHON;
        }
        else if (head == BEFORE_TOKENS && PyUnicode_CompareWithASCIIString(kind, "http.response.body") == 0) {
            done = first_token(self, message);
        }
    }
    if (done < 0 || PyErr_Occurred()) {
        return NULL;
    }
    return done ? pass_on(self, message) : by_python(self->slow, message);
}

/* A method of its own and no `tp_call`: the interpreter has a short way to those. */
static PyObject *
sender_send(Sender *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (given + named != 1
        || (named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "message") != 0)) {
        PyErr_SetString(PyExc_TypeError, "send() takes one message");
        return NULL;
    }
    PyObject *message = args[0];
    if (!self->fast) {
        return self->head == CLOSED      ? pass_on(self, message)
               : self->head == IN_PYTHON ? by_python(self->slow, message)
                                         : send_head(self, message);
    }
    int64_t now;
    if (mark_ns(&now) < 0 || push(self->times, now) < 0) {
        return NULL;
    }
    keep(self, message);
    PyObject *more = PyDict_CheckExact(message) ? Py_XNewRef(PyDict_GetItemWithError(message, s_more_body))
                                                : PyObject_GetItem(message, s_more_body);
    int straight = more == Py_True ? 1 : more == NULL ? 0 : PyObject_IsTrue(more);
    Py_XDECREF(more);
    if (more == NULL && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_KeyError)) {
            return NULL;
        }
        PyErr_Clear();
    }
    if (straight > 0) {
        if (self->flow == Py_True) {
            straight = 1;
        }
        else if (self->flow != Py_None) {
            int waits = is_paused(self);
            straight = waits < 0 ? -1 : !waits;
        }
        else {
            straight = (self->times->size & SAMPLE_MASK) != 0;
        }
    }
    if (straight < 0) {
        return NULL;
    }
    return straight ? pass_on(self, message) : by_python(self->careful, message);
}

static int
sender_traverse(Sender *self, visitproc visit, void *arg)
{
    Py_VISIT(self->slow);
    Py_VISIT(self->careful);
    Py_VISIT(self->send);
    Py_VISIT(self->flow);
    Py_VISIT(self->answer);
    Py_VISIT(self->record);
    Py_VISIT(self->times);
    for (int i = 0; i < TAIL; i++) {
        Py_VISIT(self->kept[i]);
    }
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void
sender_dealloc(Sender *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->slow);
    Py_XDECREF(self->careful);
    Py_XDECREF(self->send);
    Py_XDECREF(self->flow);
    Py_XDECREF(self->answer);
    Py_XDECREF(self->record);
    Py_XDECREF(self->times);
    for (int i = 0; i < TAIL; i++) {
        Py_XDECREF(self->kept[i]);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
sender_close(Sender *self, PyObject *Py_UNUSED(ignored))
{
    self->fast = 0;
    self->head = CLOSED;
    Py_CLEAR(self->slow);
    Py_CLEAR(self->careful);
    Py_CLEAR(self->answer);
    Py_CLEAR(self->record);
    size_t held = self->seen < TAIL ? self->seen : TAIL;
    PyObject *kept = PyList_New((Py_ssize_t)held);
    if (kept == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < held; i++) {
        size_t at = (self->seen - held + i) % TAIL;
        PyList_SET_ITEM(kept, (Py_ssize_t)i, self->kept[at]);
        self->kept[at] = NULL;
    }
    self->seen = 0;
    return kept;
}

static PyObject *
sender_switch(Sender *self, PyObject *on)
{
    int fast = PyObject_IsTrue(on);
    if (fast < 0) {
        return NULL;
    }
    if (self->head != CLOSED) {
        self->fast = (char)fast;
        self->head = IN_PYTHON;
    }
    Py_RETURN_NONE;
}

static PyMethodDef sender_methods[] = {
    {"send", (PyCFunction)(void (*)(void))sender_send, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"switch", (PyCFunction)sender_switch, METH_O, NULL},
    {"close", (PyCFunction)sender_close, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot sender_slots[] = {
    {Py_tp_dealloc, sender_dealloc}, {Py_tp_traverse, sender_traverse},
    {Py_tp_methods, sender_methods}, {0, NULL},
};

static PyType_Spec sender_spec = {
    "tailtrace.instrumentation._fast.Sender", sizeof(Sender), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    sender_slots,
};

/* answer.plain_sender */
static PyObject *
make_sender(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 7 || !Py_IS_TYPE(args[4], marks_type) || streaming_now == NULL) {
        PyErr_SetString(PyExc_TypeError, "sender() expected slow, careful, send, flow, marks, answer and record");
        return NULL;
    }
    Sender *self = (Sender *)sender_type->tp_alloc(sender_type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->slow = Py_NewRef(args[0]);
    self->careful = Py_NewRef(args[1]);
    self->send = Py_NewRef(args[2]);
    self->flow = Py_NewRef(args[3]);
    self->times = (Marks *)Py_NewRef(args[4]);
    self->answer = Py_NewRef(args[5]);
    self->record = Py_NewRef(args[6]);
    self->head = args[5] == Py_None ? IN_PYTHON : BEFORE_START;
    if (PyMethod_Check(self->send)) {
        self->function = PyMethod_GET_FUNCTION(self->send);
        self->of = PyMethod_GET_SELF(self->send);
    }
    return (PyObject *)self;
}

/* Wire ------------------------------------------------------------------------------------------------------------ */

/* USUAL_HEAD: the head was of the usual kind, and no body has come. */
enum { NOT_BEGUN, USUAL_HEAD, BEGUN, IN_TOKENS, LET_GO };

typedef struct {
    PyObject_HEAD
    PyObject *transport, *write;
    PyObject *function, *of; /* the two parts of `write` where it is a method of Python's kind */
    vectorcallfunc call;     /* how `function` is called; NULL: as any other */
    PyObject *watcher, *wait;
    Record *record;
    Marks *times;
    PyObject *kept[TAIL];
    unsigned held, next; /* pieces in `kept`, and where the next one goes */
    long long last_ns;
    PyObject *status; /* of a head of the usual kind */
    char state, in_chunks;
} Wire;

static const char last_chunk[] = "0\r\n\r\n";
#define LAST_CHUNK (sizeof last_chunk - 1)

static inline __attribute__((always_inline)) PyObject *
write_on(Wire *self, PyObject *data)
{
    if (self->call == NULL) {
        return PyObject_CallOneArg(self->write, data);
    }
    PyObject *args[3] = {NULL, self->of, data};
    return self->call(self->function, args + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
}

/* wire.body_of: where the body is in one chunk. 1: more follow; 0: it is the last; -1: not one whole chunk, no error set. */
static int
find_body(const char *data, Py_ssize_t size, const char **body, Py_ssize_t *length)
{
    *body = data;
    *length = 0;
    if (size == 0) {
        return 1;
    }
    if (size == LAST_CHUNK && memcmp(data, last_chunk, LAST_CHUNK) == 0) {
        return 0;
    }
    Py_ssize_t at = 0, inside = 0;
    while (at < size && data[at] != '\r') {
        char digit = data[at++];
        int value = digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
        if (value < 0 || at > 15) {
            return -1;
        }
        inside = inside * 16 + value;
    }
    if (at == 0 || size - at < 2 || data[at + 1] != '\n') {
        return -1;
    }
    at += 2;
    Py_ssize_t rest = size - at;
    if (inside > rest - 2) {
        return -1;
    }
    *body = data + at;
    *length = inside;
    const char *end = data + at + inside;
    rest -= inside;
    if (memcmp(end, "\r\n", 2) != 0) {
        return -1;
    }
    if (rest == 2) {
        return 1;
    }
    return rest == 2 + (Py_ssize_t)LAST_CHUNK && memcmp(end + 2, last_chunk, LAST_CHUNK) == 0 ? 0 : -1;
}

static inline void
keep_piece(Wire *self, PyObject *data)
{
    unsigned at = self->next;
    self->next = at + 1 < TAIL ? at + 1 : 0;
    self->held += self->held < TAIL;
    PyObject *old = self->kept[at];
    self->kept[at] = Py_NewRef(data);
    Py_XDECREF(old);
}

static inline int
may_be_last(const char *data, Py_ssize_t size)
{
    return size >= (Py_ssize_t)LAST_CHUNK && memcmp(data + size - LAST_CHUNK, last_chunk, LAST_CHUNK) == 0;
}

/* PlainWire._handed_over where the server has waited before. */
static int
handed_over_before(Wire *self, int64_t *at)
{
    PyObject *waits = self->record->waits;
    Py_ssize_t count = PyList_CheckExact(waits) ? PyList_GET_SIZE(waits) : 0;
    PyObject *last = count ? PyList_GET_ITEM(waits, count - 1) : NULL;
    if (last == NULL || last == self->wait || !PyTuple_CheckExact(last) || PyTuple_GET_SIZE(last) != 2) {
        return 0;
    }
    long long before = PyLong_AsLongLong(PyTuple_GET_ITEM(last, 0));
    if (before == -1 && PyErr_Occurred()) {
        return -1;
    }
    Py_XSETREF(self->wait, Py_NewRef(last));
    *at = before > self->last_ns ? before : self->last_ns;
    return 0;
}

static int
handed_over(Wire *self, int64_t *at)
{
    if (now_ns(at) < 0) {
        return -1;
    }
    PyObject *waits = self->record->waits;
    return waits == NULL || waits == Py_None ? 0 : handed_over_before(self, at);
}

static int
tell(Wire *self, PyObject *name, PyObject *message, PyObject *at)
{
    PyObject *watcher = Py_NewRef(self->watcher);
    PyObject *told = message == NULL ? NULL : PyObject_CallMethodObjArgs(watcher, name, message, at, NULL);
    Py_DECREF(watcher);
    Py_XDECREF(told);
    return told == NULL ? -1 : 0;
}

typedef struct {
    const char *name, *value;
    Py_ssize_t name_size, value_size;
} Line;

/* The next header line from `at`; where the one after it begins, or NULL when there is none. */
static const char *
next_line(const char *at, const char *end, Line *line)
{
    while (at < end) {
        const char *stop = memmem(at, (size_t)(end - at), "\r\n", 2);
        const char *over = stop == NULL ? end : stop + 2;
        stop = stop == NULL ? end : stop;
        if (stop > at) {
            const char *colon = memmem(at, (size_t)(stop - at), ": ", 2);
            line->name = at;
            line->name_size = (colon == NULL ? stop : colon) - at;
            line->value = colon == NULL ? stop : colon + 2;
            line->value_size = stop - line->value;
            return over;
        }
        at = over;
    }
    return NULL;
}

static int
is_text(const char *given, Py_ssize_t size, const char *lower)
{
    return size == (Py_ssize_t)strlen(lower) && strncasecmp(given, lower, (size_t)size) == 0;
}

static PyObject *
headers_of(const char *at, const char *end)
{
    PyObject *headers = PyList_New(0);
    Line line;
    while (headers != NULL && (at = next_line(at, end, &line)) != NULL) {
        PyObject *pair = Py_BuildValue("y#y#", line.name, line.name_size, line.value, line.value_size);
        if (pair == NULL || PyList_Append(headers, pair) < 0) {
            Py_CLEAR(headers);
        }
        Py_XDECREF(pair);
    }
    return headers;
}

/* The head of the answer. 0 or -1 with an error. */
static int
see_head(Wire *self, PyObject *head)
{
    if (!PyBytes_CheckExact(head)) {
        PyErr_SetString(PyExc_ValueError, "expected the head of an HTTP answer");
        return -1;
    }
    const char *data = PyBytes_AS_STRING(head);
    Py_ssize_t size = PyBytes_GET_SIZE(head);
    const char *end = data + size, *at = memmem(data, (size_t)size, "\r\n", 2);
    const char *first_end = at == NULL ? end : at, *space = memchr(data, ' ', (size_t)(first_end - data));
    int code = 0, digits = 0;
    for (const char *digit = space == NULL ? first_end : space + 1; digit < first_end && *digit != ' '; digit++) {
        code = *digit < '0' || *digit > '9' || digits == 3 ? -1 : code * 10 + (*digit - '0');
        digits++;
        if (code < 0) {
            break;
        }
    }
    if (size < 5 || memcmp(data, "HTTP/", 5) != 0 || code < 0 || digits != 3) {
        PyErr_SetString(PyExc_ValueError, "expected the head of an HTTP answer");
        return -1;
    }
    if (code < 200) {
        return 0;
    }
    at = at == NULL ? end : at + 2;
    int events = 0, sized = 0;
    Line line;
    for (const char *next = at; (next = next_line(next, end, &line)) != NULL;) {
        if (is_text(line.name, line.name_size, "content-type")) {
            events = line.value_size >= 17 && strncasecmp(line.value, "text/event-stream", 17) == 0;
        }
        else if (is_text(line.name, line.name_size, "content-length")) {
            sized = 1;
        }
        else if (is_text(line.name, line.name_size, "transfer-encoding") && is_text(line.value, line.value_size, "chunked")) {
            self->in_chunks = 1;
        }
    }
    PyObject *status = PyLong_FromLong(code);
    int done = -1;
    if (status != NULL && events && !sized && self->in_chunks && code < 400 && self->times->size == 0) {
        self->state = USUAL_HEAD;
        Py_XSETREF(self->status, Py_NewRef(status));
        done = mark_stream(self->watcher, (PyObject *)self->record, status) < 0 ? -1 : 0;
    }
    else if (status != NULL) {
        self->state = BEGUN;
        PyObject *headers = headers_of(at, end);
        PyObject *message = headers == NULL ? NULL
                                            : Py_BuildValue("{OOOOON}", s_type, s_start_message, s_status, status, s_headers,
                                                            headers);
        done = tell(self, s_saw_head, message, NULL);
        Py_XDECREF(message);
    }
    Py_XDECREF(status);
    return done;
}

/* A body that is no token in the middle of a stream. 0 or -1 with an error. */
static int
see_body(Wire *self, PyObject *data, int64_t at)
{
    const char *text = NULL;
    Py_ssize_t size = 0;
    int more = 1, usual = self->state == USUAL_HEAD;
    if (self->in_chunks) {
        more = PyBytes_CheckExact(data) ? find_body(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &text, &size) : -1;
        if (more < 0) {
            PyErr_SetString(PyExc_ValueError, "expected one whole chunk");
            return -1;
        }
    }
    self->state = BEGUN;
    if (usual && more && is_first_token(text, (size_t)size)) {
        if (mark_first_token(self->watcher, (PyObject *)self->record, self->times, at, (size_t)size) < 0) {
            return -1;
        }
        keep_piece(self, data);
        self->state = IN_TOKENS;
        return 0;
    }
    PyObject *body = self->in_chunks ? PyBytes_FromStringAndSize(text, size) : Py_NewRef(data);
    PyObject *message = body == NULL ? NULL
                                     : Py_BuildValue("{OOONOO}", s_type, s_body_message, s_body, body, s_more_body,
                                                     more ? Py_True : Py_False);
    PyObject *when = PyLong_FromLongLong(at);
    int done = when == NULL ? -1 : tell(self, s_saw_body, message, when);
    Py_XDECREF(message);
    Py_XDECREF(when);
    return done;
}

static void
let_go(Wire *self)
{
    self->state = LET_GO;
    Py_CLEAR(self->watcher);
}

/* PlainWire._is_inside: a token that may be the last. 1: more follow for sure; 0: it may be the last; -1 with an error. */
static int
see_token(Wire *self, PyObject *data, int64_t at)
{
    if (push(self->times, at) < 0) {
        return -1;
    }
    keep_piece(self, data);
    self->last_ns = at;
    Py_ssize_t size = PyBytes_GET_SIZE(data);
    const char *text = PyBytes_AS_STRING(data);
    if (!may_be_last(text, size)) {
        return 1;
    }
    int more = find_body(text, size, &text, &size);
    if (more < 0) {
        PyErr_SetString(PyExc_ValueError, "expected one whole chunk");
    }
    self->state = more == 0 ? BEGUN : self->state;
    return more;
}

/* Write a piece; then tell when it was written, and look at it where that is wanted (`look`): the client waits for the
 * piece, nobody for what is made of it. */
static PyObject *
write_first(Wire *self, PyObject *data, int64_t at, int look)
{
    PyObject *done = write_on(self, data);
    int64_t now;
    if (done == NULL) {
        return NULL;
    }
    if (now_ns(&now) == 0) {
        self->last_ns = now;
    }
    else {
        PyErr_Clear();
    }
    if (look && self->state != LET_GO && see_body(self, data, at) < 0) {
        PyErr_Clear();
        let_go(self);
    }
    return done;
}

static PyObject * __attribute__((noinline))
write_watched(Wire *self, PyObject *data)
{
    int64_t at = 0;
    int look = 0;
    if (self->state != LET_GO) {
        int more = handed_over(self, &at);
        if (more == 0 && self->state == IN_TOKENS && PyBytes_CheckExact(data)) {
            more = see_token(self, data, at);
        }
        else if (more == 0 && self->state == NOT_BEGUN) {
            more = see_head(self, data);
        }
        else {
            look = more == 0;
        }
        if (more > 0) {
            return write_on(self, data);
        }
        if (more < 0) {
            /* The app goes on as without us. */
            PyErr_Clear();
            let_go(self);
        }
    }
    return write_first(self, data, at, look);
}

/* A server's code fills the processor's caches many times over, so what counts here is how little code is passed: a token in
 * the middle of a stream takes this one way without a call. */
static PyObject *
wire_write(Wire *self, PyObject *data)
{
    Marks *times = self->times;
    PyObject *waits = self->record->waits;
    int64_t at;
    if (self->state == IN_TOKENS && PyBytes_CheckExact(data) && times->size < times->room && (waits == NULL || waits == Py_None)
        && !may_be_last(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))) {
        if (mark_ns(&at) == 0) {
            times->at[times->size++] = at;
            self->last_ns = at;
            keep_piece(self, data);
            return write_on(self, data);
        }
        PyErr_Clear();
    }
    return write_watched(self, data);
}

static PyObject *
wire_switch(Wire *self, PyObject *on)
{
    int tokens = PyObject_IsTrue(on);
    if (tokens < 0) {
        return NULL;
    }
    if (self->state != LET_GO) {
        self->state = tokens ? IN_TOKENS : BEGUN;
    }
    Py_RETURN_NONE;
}

static PyObject *
wire_release(Wire *self, PyObject *cycle)
{
    PyObject *theirs = PyObject_GetAttr(cycle, s_transport);
    if (theirs == NULL || (theirs == (PyObject *)self && PyObject_SetAttr(cycle, s_transport, self->transport) < 0)) {
        Py_XDECREF(theirs);
        return NULL;
    }
    Py_DECREF(theirs);
    let_go(self);
    PyObject *kept = PyList_New(0);
    for (unsigned i = 0; kept != NULL && i < self->held; i++) {
        PyObject *data = self->kept[(self->next + TAIL - self->held + i) % TAIL];
        const char *text;
        Py_ssize_t size;
        if (find_body(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &text, &size) >= 0) {
            PyObject *body = PyBytes_FromStringAndSize(text, size);
            if (body == NULL || PyList_Append(kept, body) < 0) {
                Py_CLEAR(kept);
            }
            Py_XDECREF(body);
        }
    }
    for (int i = 0; i < TAIL; i++) {
        Py_CLEAR(self->kept[i]);
    }
    self->held = self->next = 0;
    return kept;
}

/* All else of a transport is the server's own. No `tp_getattro`: the interpreter has no short way to methods past one. */
static PyObject *
wire_forward(Wire *self, void *name)
{
    return PyObject_GetAttrString(self->transport, name);
}

static int
wire_traverse(Wire *self, visitproc visit, void *arg)
{
    Py_VISIT(self->transport);
    Py_VISIT(self->write);
    Py_VISIT(self->watcher);
    Py_VISIT(self->wait);
    Py_VISIT(self->record);
    Py_VISIT(self->times);
    for (int i = 0; i < TAIL; i++) {
        Py_VISIT(self->kept[i]);
    }
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static int
wire_clear(Wire *self)
{
    let_go(self);
    return 0;
}

static void
wire_dealloc(Wire *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->transport);
    Py_XDECREF(self->write);
    Py_XDECREF(self->watcher);
    Py_XDECREF(self->wait);
    Py_XDECREF(self->status);
    Py_XDECREF(self->record);
    Py_XDECREF(self->times);
    for (int i = 0; i < TAIL; i++) {
        Py_XDECREF(self->kept[i]);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef wire_methods[] = {
    {"write", (PyCFunction)wire_write, METH_O, NULL},
    {"switch", (PyCFunction)wire_switch, METH_O, NULL},
    {"release", (PyCFunction)wire_release, METH_O, NULL},
    {NULL},
};

static PyMemberDef wire_members[] = {
    {"last_ns", T_LONGLONG, offsetof(Wire, last_ns), READONLY},
    {NULL},
};

#define FORWARD(NAME) {NAME, (getter)wire_forward, NULL, NULL, NAME}

static PyGetSetDef wire_fields[] = {
    FORWARD("abort"), FORWARD("can_write_eof"), FORWARD("close"), FORWARD("get_extra_info"), FORWARD("get_protocol"),
    FORWARD("get_write_buffer_limits"), FORWARD("get_write_buffer_size"), FORWARD("is_closing"), FORWARD("is_reading"),
    FORWARD("pause_reading"), FORWARD("resume_reading"), FORWARD("set_protocol"), FORWARD("set_write_buffer_limits"),
    FORWARD("write_eof"), FORWARD("writelines"), {NULL},
};

static PyType_Slot wire_slots[] = {
    {Py_tp_dealloc, wire_dealloc}, {Py_tp_traverse, wire_traverse}, {Py_tp_clear, wire_clear},
    {Py_tp_methods, wire_methods}, {Py_tp_members, wire_members}, {Py_tp_getset, wire_fields}, {0, NULL},
};

static PyType_Spec wire_spec = {
    "tailtrace.instrumentation._fast.Wire", sizeof(Wire), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, wire_slots,
};

/* wire(transport, watcher, record) -> wire.PlainWire */
static PyObject *
make_wire(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || record_type == NULL || !Py_IS_TYPE(args[2], record_type)) {
        PyErr_SetString(PyExc_TypeError, "wire() expected a transport, a watcher and a Record");
        return NULL;
    }
    PyObject *times = ((Record *)args[2])->times, *write;
    if (times == NULL || !Py_IS_TYPE(times, marks_type)) {
        PyErr_SetString(PyExc_TypeError, "wire() expected a Record with marks");
        return NULL;
    }
    if ((write = PyObject_GetAttr(args[0], s_write)) == NULL) {
        return NULL;
    }
    Wire *self = (Wire *)wire_type->tp_alloc(wire_type, 0);
    if (self == NULL) {
        Py_DECREF(write);
        return NULL;
    }
    self->transport = Py_NewRef(args[0]);
    self->write = write;
    self->watcher = Py_NewRef(args[1]);
    self->record = (Record *)Py_NewRef(args[2]);
    self->times = (Marks *)Py_NewRef(times);
    if (PyMethod_Check(write)) {
        self->function = PyMethod_GET_FUNCTION(write);
        self->of = PyMethod_GET_SELF(write);
        self->call = PyVectorcall_Function(self->function);
    }
    return (PyObject *)self;
}

/* Round trip ------------------------------------------------------------------------------------------------------ */

/* tcp_info(descriptor) -> the kernel's smoothed round trip of a TCP connection in ns, and its retransmitted segments so
 * far; zeros where it is none */
static PyObject *
tcp_info(PyObject *module, PyObject *descriptor)
{
    long file = PyLong_AsLong(descriptor);
    if (file == -1 && PyErr_Occurred()) {
        return NULL;
    }
    struct tcp_info info;
    socklen_t size = sizeof info;
    if (file < 0 || file > INT_MAX || getsockopt((int)file, IPPROTO_TCP, TCP_INFO, &info, &size) < 0
        || size < offsetof(struct tcp_info, tcpi_total_retrans) + sizeof info.tcpi_total_retrans) {
        return Py_BuildValue("ii", 0, 0);
    }
    return Py_BuildValue("KI", (unsigned long long)info.tcpi_rtt * 1000, (unsigned int)info.tcpi_total_retrans);
}

/* End ------------------------------------------------------------------------------------------------------------- */

static PyObject *
client_behind(PyObject *transport)
{
    PyObject *given = PyObject_CallMethodOneArg(transport, s_get_extra_info, s_socket), *file = NULL, *found = NULL;
    if (given == Py_None) {
        found = Py_BuildValue("ii", 0, 0);
    }
    else if (given != NULL && (file = PyObject_CallMethodNoArgs(given, s_fileno)) != NULL) {
        found = tcp_info(NULL, file);
    }
    Py_XDECREF(given);
    Py_XDECREF(file);
    return found;
}

/* answer.client_of */
static PyObject *
client_of(PyObject *module, PyObject *cycle)
{
    PyObject *transport = PyObject_GetAttr(cycle, s_transport);
    PyObject *found = transport == NULL ? NULL : transport == Py_None ? Py_NewRef(Py_None) : client_behind(transport);
    Py_XDECREF(transport);
    return found;
}

/* Record.finish of a request that went well; 0 or -1 with an error. */
static int
finish_record(Record *record, int64_t end_ns)
{
    if (record->end_ns) {
        return 0;
    }
    end_ns = end_ns < record->start_ns ? record->start_ns : end_ns;
    if (record->engine != NULL && record->engine != Py_None) {
        PyObject *closed = PyObject_CallMethod(record->engine, "close", "OL", (PyObject *)record, (long long)end_ns);
        if (closed == NULL) {
            return -1;
        }
        Py_DECREF(closed);
    }
    record->end_ns = end_ns;
    if (record->first_ns) {
        PyObject *id = PyLong_FromVoidPtr(record);
        if (id == NULL || PyDict_DelItem(streaming_now, id) < 0) {
            if (id == NULL || !PyErr_ExceptionMatches(PyExc_KeyError)) {
                Py_XDECREF(id);
                return -1;
            }
            PyErr_Clear();
        }
        Py_DECREF(id);
    }
    int sampled = PyObject_IsTrue(record->sampled);
    if (sampled <= 0) {
        return sampled;
    }
    PyObject *submit = PyDict_GetItemWithError(record_module, s_submit);
    if (submit == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_AttributeError, "submit");
        }
        return -1;
    }
    Py_INCREF(submit);
    PyObject *put = PyObject_CallOneArg(submit, (PyObject *)record);
    Py_DECREF(submit);
    Py_XDECREF(put);
    return put == NULL ? -1 : 0;
}

static int
finish_answered(Record *record, PyObject *status, PyObject *connection, int64_t end_ns)
{
    if (PyDict_SetItem(record->attributes, s_status_code, status) < 0) {
        return -1;
    }
    PyObject *names[] = {s_client_rtt, s_retransmits};
    for (int i = 0; i < 2; i++) {
        PyObject *value = PyTuple_GET_ITEM(connection, i);
        int set = PyObject_IsTrue(value);
        if (set < 0 || (set && PyDict_SetItem(record->attributes, names[i], value) < 0)) {
            return -1;
        }
    }
    return finish_record(record, end_ns);
}

/* finish_stream(wire, cycle) -> whether it did what Answer.finish does for a stream whose client has stayed: it was of the
 * usual kind, is complete, and never waited; else that has to. */
static PyObject *
finish_stream(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !Py_IS_TYPE(args[0], wire_type)) {
        PyErr_SetString(PyExc_TypeError, "finish_stream() expected a wire and its server's cycle");
        return NULL;
    }
    Wire *self = (Wire *)args[0];
    Record *record = self->record;
    if (self->state != BEGUN || self->status == NULL || !record->first_ns || record->streaming != Py_True
        || !is_nothing(record->waits) || !is_nothing(record->tail)) {
        Py_RETURN_FALSE;
    }
    PyObject *complete = PyObject_GetAttr(args[1], s_response_complete);
    PyObject *connection = complete == Py_True ? client_behind(self->transport) : NULL;
    Py_XDECREF(complete);
    if (connection == NULL) {
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    PyObject *kept = wire_release(self, args[1]);
    int done = kept == NULL ? -1 : 0;
    if (kept != NULL) {
        Py_XSETREF(record->tail, kept);
        done = finish_answered(record, self->status, connection, self->last_ns);
    }
    Py_DECREF(connection);
    return done < 0 ? NULL : Py_NewRef(Py_True);
}

/* finish_well(record, status, connection, end_ns): answer._finish_well */
static PyObject *
finish_well(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || record_type == NULL || !Py_IS_TYPE(args[0], record_type) || !PyTuple_CheckExact(args[2])
        || PyTuple_GET_SIZE(args[2]) != 2) {
        PyErr_SetString(PyExc_TypeError, "finish_well() expected a Record, a status, a pair and nanoseconds");
        return NULL;
    }
    Record *record = (Record *)args[0];
    long long end_ns = PyLong_AsLongLong(args[3]);
    if (end_ns == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return finish_answered(record, args[1], args[2], end_ns) < 0 ? NULL : Py_NewRef(Py_None);
}

/* name_after_route(record, scope) -> whether it did what gateway.name_after_route does; else that has to. */
static PyObject *
name_after_route(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || record_type == NULL || !Py_IS_TYPE(args[0], record_type) || !PyDict_CheckExact(args[1])) {
        Py_RETURN_FALSE;
    }
    Record *record = (Record *)args[0];
    PyObject *route = PyDict_GetItemWithError(args[1], s_route);
    if (route == NULL || record->name == NULL || !PyUnicode_Check(record->name)) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    PyObject *path = PyObject_GetAttr(route, s_path);
    if (path == NULL || !PyUnicode_CheckExact(path)) {
        PyErr_Clear();
        Py_XDECREF(path);
        Py_RETURN_FALSE;
    }
    Py_SETREF(path, PyUnicode_Substring(path, 0, MAX_PATH));
    PyObject *name = path == NULL ? NULL : PyUnicode_FromFormat("%U %U", record->name, path);
    int done = name == NULL ? -1 : PyDict_SetItem(record->attributes, s_tailtrace_route, path);
    if (done == 0) {
        Py_XSETREF(record->name, Py_NewRef(name));
    }
    Py_XDECREF(name);
    Py_XDECREF(path);
    return done < 0 ? NULL : Py_NewRef(Py_True);
}

/* Loop probe ------------------------------------------------------------------------------------------------------ */

#define MAX_TICKS 64

/* The run-queue nanoseconds in a thread's schedstat; -1 where it cannot be read. */
static long long
run_queue_ns(int file)
{
    char text[128];
    ssize_t size = pread(file, text, sizeof text - 1, 0);
    unsigned long long cpu, queue;
    if (size <= 0) {
        return -1;
    }
    text[size] = 0;
    return sscanf(text, "%llu %llu", &cpu, &queue) == 2 && queue <= LLONG_MAX ? (long long)queue : -1;
}

/* probe_ticks(seconds, count, schedstat) -> [(seconds of the monotonic clock, run-queue ns or None), ...]
 *
 * `count` sleeps of `seconds`, each without the interpreter, whose being late is what is measured: it is given back as
 * soon as the clock is read, so that a busy loop waits for no more than that. */
static PyObject *
probe_ticks(PyObject *module, PyObject *args)
{
    double seconds;
    int count, file;
    if (!PyArg_ParseTuple(args, "dii:probe_ticks", &seconds, &count, &file)) {
        return NULL;
    }
    if (!(seconds >= 0 && seconds <= 10) || count < 1 || count > MAX_TICKS) {
        PyErr_Format(PyExc_ValueError, "probe_ticks() expected 0 to 10 seconds and 1 to %d ticks", MAX_TICKS);
        return NULL;
    }
    int64_t ns = (int64_t)(seconds * 1e9);
    double at[MAX_TICKS];
    long long queue[MAX_TICKS];
    for (int i = 0; i < count; i++) {
        struct timespec pause = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, now;
        Py_BEGIN_ALLOW_THREADS
        if (i) {
            queue[i - 1] = run_queue_ns(file);
        }
        nanosleep(&pause, NULL);
        Py_END_ALLOW_THREADS
        clock_gettime(CLOCK_MONOTONIC, &now);
        at[i] = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    }
    queue[count - 1] = run_queue_ns(file);
    PyObject *ticks = PyList_New(count);
    for (int i = 0; ticks != NULL && i < count; i++) {
        PyObject *tick = queue[i] < 0 ? Py_BuildValue("dO", at[i], Py_None) : Py_BuildValue("dL", at[i], queue[i]);
        if (tick == NULL) {
            Py_CLEAR(ticks);
        }
        else {
            PyList_SET_ITEM(ticks, i, tick);
        }
    }
    return ticks;
}

/* Module ---------------------------------------------------------------------------------------------------------- */

static int
add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **to)
{
    *to = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *to == NULL ? -1 : PyModule_AddType(module, *to);
}

static int
text(PyObject **to, const char *value)
{
    *to = PyUnicode_InternFromString(value);
    return *to == NULL ? -1 : 0;
}

static int
execute(PyObject *module)
{
    if (PyInterpreterState_Get() != PyInterpreterState_Main() || marks_type != NULL) {
        PyErr_SetString(PyExc_ImportError, "tailtrace._fast is loaded once, by the main interpreter");
        return -1;
    }
    find_counter();
    empty_bytes = PyBytes_FromStringAndSize("", 0);
    if (empty_bytes == NULL || text(&empty_text, "") < 0 || text(&s_more_body, "more_body") < 0
        || text(&s_write_paused, "write_paused") < 0 || text(&s_span_id, "span_id") < 0
        || text(&s_trace_id, "trace_id") < 0 || text(&s_parent_span_id, "parent_span_id") < 0
        || text(&s_start_ns, "start_ns") < 0 || text(&s_end_ns, "end_ns") < 0 || text(&s_stages, "stages") < 0
        || text(&s_deliver, "deliver") < 0 || text(&s_name, "__name__") < 0
        || text(&s_type, "type") < 0
        || text(&s_status, "status") < 0 || text(&s_headers, "headers") < 0 || text(&s_body, "body") < 0
        || text(&s_streaming, "streaming") < 0 || text(&s_first_ns, "first_ns") < 0
        || text(&s_answer_ns, "answer_ns") < 0 || text(&s__start_ns, "_start_ns") < 0
        || text(&s__status, "_status") < 0 || text(&s__framed, "_framed") < 0 || text(&s__size, "_size") < 0
        || text(&s__fast, "_fast") < 0 || text(&s_sampled, "sampled") < 0 || text(&s_trace_state, "trace_state") < 0
        || text(&s_size, "size") < 0 || text(&s_method, "method") < 0 || text(&s_begin_ns, "tailtrace.begin_ns") < 0
        || text(&s_seen, "tailtrace.request") < 0 || text(&s_websocket, "WEBSOCKET") < 0
        || text(&s_request_size, "http.request.body.size") < 0 || text(&s_transport, "transport") < 0
        || text(&s_get_extra_info, "get_extra_info") < 0 || text(&s_socket, "socket") < 0 || text(&s_fileno, "fileno") < 0
        || text(&s_submit, "submit") < 0 || text(&s_response_model, "gen_ai.response.model") < 0
        || text(&s_engine_of_new, "engine_of_new") < 0 || text(&s_status_code, "http.response.status_code") < 0
        || text(&s_client_rtt, "tailtrace.client_rtt_ns") < 0 || text(&s_retransmits, "tailtrace.client_retransmits") < 0
        || text(&s_route, "route") < 0 || text(&s_path, "path") < 0 || text(&s_tailtrace_route, "tailtrace.route") < 0
        || text(&s_write, "write") < 0 || text(&s_saw_head, "saw_head") < 0 || text(&s_saw_body, "saw_body") < 0
        || text(&s_start_message, "http.response.start") < 0 || text(&s_body_message, "http.response.body") < 0
        || text(&s_response_complete, "response_complete") < 0
        || (b_traceparent = PyBytes_FromString("traceparent")) == NULL
        || (b_tracestate = PyBytes_FromString("tracestate")) == NULL) {
        return -1;
    }
    if (add_type(module, &marks_spec, &marks_type) < 0 || add_type(module, &times_spec, &times_type) < 0
        || add_type(module, &stage_spec, &stage_type) < 0 || add_type(module, &sender_spec, &sender_type) < 0
        || add_type(module, &record_spec, &record_base) < 0 || add_type(module, &buffer_spec, &buffer_type) < 0
        || add_type(module, &entered_spec, &entered_type) < 0 || add_type(module, &wire_spec, &wire_type) < 0
        || PyModule_AddIntConstant(module, "interface", INTERFACE) < 0) {
        return -1;
    }
    return 0;
}

static PyMethodDef functions[] = {
    {"use_clock", use_clock, METH_O, NULL},
    {"use_bounds", use_bounds, METH_O, NULL},
    {"use_scopes", use_scopes, METH_VARARGS, NULL},
    {"use_encoders", use_encoders, METH_VARARGS, NULL},
    {"use_requests", use_requests, METH_VARARGS, NULL},
    {"use_context", use_context, METH_VARARGS, NULL},
    {"begin", (PyCFunction)(void (*)(void))begin, METH_FASTCALL, NULL},
    {"one_chat_text", one_chat_text, METH_O, NULL},
    {"encode_record", (PyCFunction)(void (*)(void))encode_record, METH_FASTCALL, NULL},
    {"plain_tail", (PyCFunction)(void (*)(void))plain_tail, METH_FASTCALL, NULL},
    {"tcp_info", tcp_info, METH_O, NULL},
    {"client_of", client_of, METH_O, NULL},
    {"finish_stream", (PyCFunction)(void (*)(void))finish_stream, METH_FASTCALL, NULL},
    {"finish_well", (PyCFunction)(void (*)(void))finish_well, METH_FASTCALL, NULL},
    {"name_after_route", (PyCFunction)(void (*)(void))name_after_route, METH_FASTCALL, NULL},
    {"probe_ticks", probe_ticks, METH_VARARGS, NULL},
    {"sender", (PyCFunction)(void (*)(void))make_sender, METH_FASTCALL, NULL},
    {"wire", (PyCFunction)(void (*)(void))make_wire, METH_FASTCALL, NULL},
    {"encode_request", (PyCFunction)(void (*)(void))encode_request, METH_FASTCALL, NULL},
    {NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_fast", NULL, 0, functions, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__fast(void)
{
    return PyModuleDef_Init(&definition);
}
