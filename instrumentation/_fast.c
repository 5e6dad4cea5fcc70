/* What runs at every token, stage and span, in C. Optional: where it is not built the Python twins run, and the tests
 * compare the two. What each piece means is said there:
 *
 *   TokenMarks, TokenTimes   tokens.py
 *   StageBase                record.py
 *   encode_request           encode.py
 *   plain_tail               encode.py
 *   sender                   answer.py
 *   tcp_info                 tcp_info.py
 *   one_chat_text            sse.py
 *   probe_tick               loop_probe.py
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
#define INTERFACE 4 /* native.py expects this one */

static PyObject *other_clock; /* NULL: the real one */
static PyObject *current;     /* the context variable CURRENT */
static PyObject *streaming_now;
static PyTypeObject *record_type;
static PyTypeObject *marks_type, *times_type, *stage_type, *sender_type;
static PyObject *stage_heads, *make_stage_head, *make_pair, *make_status;
static PyObject *empty_text, *empty_bytes;
static PyObject *s_more_body, *s_write_paused, *s_span_id, *s_trace_id, *s_parent_span_id, *s_start_ns, *s_end_ns,
    *s_stages, *s_deliver, *s_name, *s_switch, *s_take_kept, *s_type, *s_status, *s_headers, *s_body, *s_streaming,
    *s_first_ns, *s_answer_ns, *s__start_ns, *s__status, *s__framed, *s__size, *s__fast;
static int64_t bounds[BOUNDS];
/* By bit length and the bits below the highest: the bucket of the smallest number that begins so. An octave has 35 buckets
 * and 64 cells, so a search sees at most two bounds. */
#define CELLS 64
static int first_of_cell[64 * CELLS];

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

static PyObject *
use_clock(PyObject *module, PyObject *callable)
{
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
    return now_ns(&now) < 0 || push(self, now) < 0 ? NULL : Py_NewRef(Py_None);
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

static PyObject *
times_gaps_text(Times *self, PyObject *Py_UNUSED(ignored))
{
    size_t pieces = 0;
    for (int k = self->lowest; k <= self->highest; k++) {
        pieces += self->counts[k] != 0;
    }
    char *text = PyMem_Malloc(pieces * 26 + 1), *out = text;
    if (text == NULL) {
        return PyErr_NoMemory();
    }
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
    PyObject *result = PyUnicode_FromStringAndSize(text, out - text);
    PyMem_Free(text);
    return result;
}

static PyObject *
times_stalls_text(Times *self, PyObject *start)
{
    long long start_ns = PyLong_AsLongLong(start);
    if (start_ns == -1 && PyErr_Occurred()) {
        return NULL;
    }
    Stall sorted[MAX_STALLS];
    for (int i = 0; i < self->stalls; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1].begin > self->longest[i].begin; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = self->longest[i];
    }
    char text[MAX_STALLS * 44], *out = text;
    for (int i = 0; i < self->stalls; i++) {
        if (i) {
            *out++ = ',';
        }
        out = write_signed(out, minus(sorted[i].begin, start_ns));
        *out++ = ':';
        out = write_signed(out, sorted[i].length);
    }
    return PyUnicode_FromStringAndSize(text, out - text);
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
    /* A stage that has children gets its id before it is written, whichever of them ended first. */
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(stages); i++) {
        PyObject *parent = is_stage(PyList_GET_ITEM(stages, i)) ? ((Stage *)PyList_GET_ITEM(stages, i))->parent : NULL;
        if (is_stage(parent)) {
            Py_INCREF(parent);
            PyObject *id = PyObject_GetAttr(parent, s_span_id);
            Py_DECREF(parent);
            if (id == NULL) {
                goto end;
            }
            Py_DECREF(id);
        }
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(stages) && 8 * (i + 1) <= PyBytes_GET_SIZE(args[4]); i++) {
        PyObject *stage = PyList_GET_ITEM(stages, i);
        if (!is_stage(stage)) {
            PyErr_SetString(PyExc_TypeError, "encode_request() expected stages");
            goto end;
        }
        Py_INCREF(stage);
        int done = write_stage(&out, (Stage *)stage, record, PyBytes_AS_STRING(trace_id), span_id,
                               PyBytes_AS_STRING(args[4]) + 8 * i, anchor);
        Py_DECREF(stage);
        if (done < 0) {
            goto end;
        }
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
    PyObject *heads, *head, *pair, *status;
    if (!PyArg_ParseTuple(args, "O!OOO:use_encoders", &PyDict_Type, &heads, &head, &pair, &status)) {
        return NULL;
    }
    Py_XSETREF(stage_heads, Py_NewRef(heads));
    Py_XSETREF(make_stage_head, Py_NewRef(head));
    Py_XSETREF(make_pair, Py_NewRef(pair));
    Py_XSETREF(make_status, Py_NewRef(status));
    Py_RETURN_NONE;
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

/* Whether a body speaks of something else than the text of one chat chunk: usage, other samples, a model. */
static int
says_more(const char *body, size_t size, int model_known)
{
    /* sse._USAGE_PARTS */
    static const char *parts[] = {"_tokens", "tokens_", "_count", "_length", "TokenCount"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (memmem(body, size, parts[i], strlen(parts[i]))) {
            return 1;
        }
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

/* plain_tail(messages, model_known) -> how many bodies at the end are empty, where every other one is the text of one
 * chat chunk and says no more; -1 where they have to be read. */
static PyObject *
plain_tail(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "plain_tail() expected messages and whether the model is known");
        return NULL;
    }
    int known = PyObject_IsTrue(args[1]);
    PyObject *messages = known < 0 ? NULL : PySequence_Fast(args[0], "plain_tail() expected messages");
    if (messages == NULL) {
        return NULL;
    }
    long empty = 0;
    for (Py_ssize_t i = 0; empty >= 0 && i < PySequence_Fast_GET_SIZE(messages); i++) {
        PyObject *message = PySequence_Fast_GET_ITEM(messages, i);
        PyObject *body = PyDict_CheckExact(message) ? PyDict_GetItemWithError(message, s_body) : NULL;
        if (body == NULL || !PyBytes_CheckExact(body)) {
            empty = PyErr_Occurred() ? -2 : -1;
        }
        else if (PyBytes_GET_SIZE(body) == 0) {
            empty++;
        }
        else {
            const char *text = PyBytes_AS_STRING(body);
            Py_ssize_t size = PyBytes_GET_SIZE(body);
            empty = is_one_chat_text(text, size) && !says_more(text, (size_t)size, known) ? 0 : -1;
        }
    }
    Py_DECREF(messages);
    return empty == -2 ? NULL : PyLong_FromLong(empty);
}

/* Sender ---------------------------------------------------------------------------------------------------------- */

enum { IN_PYTHON, BEFORE_START, BEFORE_TOKENS };

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
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
    int64_t now;
    if (!events || beyond || code >= 400 || self->times->size) {
        return 0;
    }
    if (now_ns(&now) < 0 || set_ns(self->answer, s__start_ns, now) < 0
        || PyObject_SetAttr(self->answer, s__status, status) < 0
        || PyObject_SetAttr(self->answer, s__framed, Py_True) < 0
        || PyObject_SetAttr(self->record, s_streaming, Py_True) < 0) {
        return -1;
    }
    return 1;
}

/* Answer._before_tokens for a body that is the first of an answer's tokens, and Record.begin_tokens. As above. */
static int
first_token(Sender *self, PyObject *message)
{
    PyObject *body = PyDict_GetItemWithError(message, s_body), *more = PyDict_GetItemWithError(message, s_more_body);
    if (body == NULL || more != Py_True || !PyBytes_CheckExact(body) || self->times->size) {
        return PyErr_Occurred() ? -1 : 0;
    }
    const char *text = PyBytes_AS_STRING(body);
    size_t size = (size_t)PyBytes_GET_SIZE(body);
    /* Names of models and usage are taken out by Python. */
    if (!is_one_chat_text(text, (Py_ssize_t)size) || memmem(text, size, "\"model\"", 7) || memmem(text, size, "usage", 5)) {
        return 0;
    }
    int waits = self->flow == Py_None ? 1 : is_paused(self);
    if (waits) {
        return waits < 0 ? -1 : 0;
    }
    int64_t now;
    PyObject *id = NULL, *length = NULL;
    int done = -1;
    if (now_ns(&now) == 0 && (length = PyLong_FromSize_t(size)) != NULL
        && (id = PyLong_FromVoidPtr(self->record)) != NULL && set_ns(self->record, s_first_ns, now) == 0
        && set_ns(self->record, s_answer_ns, now) == 0 && PyObject_SetAttr(self->answer, s__size, length) == 0
        && PyObject_SetAttr(self->answer, s__fast, Py_True) == 0 && push(self->times, now) == 0
        && PyDict_SetItem(streaming_now, id, self->record) == 0) {
        keep(self, message);
        self->fast = 1;
        done = 1;
    }
    Py_XDECREF(id);
    Py_XDECREF(length);
    return done;
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
    return done ? pass_on(self, message) : PyObject_CallOneArg(self->slow, message);
}

static PyObject *
sender_call(Sender *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Py_ssize_t given = PyVectorcall_NARGS(flags);
    if (given != 1 || (names != NULL && PyTuple_GET_SIZE(names))) {
        if (given == 0 && names != NULL && PyTuple_GET_SIZE(names) == 1) {
            /* send(message=...) */
            return sender_call(self, args, 1, NULL);
        }
        PyErr_SetString(PyExc_TypeError, "send() takes one message");
        return NULL;
    }
    PyObject *message = args[0];
    if (!self->fast) {
        return self->head == IN_PYTHON ? PyObject_CallOneArg(self->slow, message) : send_head(self, message);
    }
    int64_t now;
    if (now_ns(&now) < 0 || push(self->times, now) < 0) {
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
        if (self->flow != Py_None) {
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
    return straight ? pass_on(self, message) : PyObject_CallOneArg(self->careful, message);
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
sender_take_kept(Sender *self, PyObject *Py_UNUSED(ignored))
{
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
    self->fast = (char)fast;
    self->head = IN_PYTHON;
    Py_RETURN_NONE;
}

static PyMethodDef sender_methods[] = {
    {"switch", (PyCFunction)sender_switch, METH_O, NULL},
    {"take_kept", (PyCFunction)sender_take_kept, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef sender_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Sender, vectorcall), READONLY, NULL},
    {NULL},
};

static PyType_Slot sender_slots[] = {
    {Py_tp_dealloc, sender_dealloc}, {Py_tp_traverse, sender_traverse},
    {Py_tp_call, PyVectorcall_Call}, {Py_tp_methods, sender_methods}, {Py_tp_members, sender_members}, {0, NULL},
};

static PyType_Spec sender_spec = {
    "tailtrace.instrumentation._fast.Sender", sizeof(Sender), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE
        | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    sender_slots,
};

/* sender(slow, careful, send, flow, times, answer, record) -> (send, switch, take_kept) */
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
    self->vectorcall = (vectorcallfunc)sender_call;
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
    PyObject *turn = PyObject_GetAttr((PyObject *)self, s_switch);
    PyObject *take = turn == NULL ? NULL : PyObject_GetAttr((PyObject *)self, s_take_kept);
    PyObject *result = take == NULL ? NULL : PyTuple_Pack(3, self, turn, take);
    Py_DECREF(self);
    Py_XDECREF(turn);
    Py_XDECREF(take);
    return result;
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

/* Loop probe ------------------------------------------------------------------------------------------------------ */

/* probe_tick(seconds, schedstat) -> (seconds of the monotonic clock, CPU ns, run-queue ns; these None where unread).
 *
 * The sleep is without the interpreter, whose being late is what is measured; after it nothing is waited for twice. */
static PyObject *
probe_tick(PyObject *module, PyObject *args)
{
    double seconds;
    int file;
    if (!PyArg_ParseTuple(args, "di:probe_tick", &seconds, &file)) {
        return NULL;
    }
    if (!(seconds >= 0 && seconds <= 10)) {
        PyErr_SetString(PyExc_ValueError, "probe_tick() expected 0 to 10 seconds");
        return NULL;
    }
    int64_t ns = (int64_t)(seconds * 1e9);
    struct timespec pause = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, now;
    Py_BEGIN_ALLOW_THREADS
    nanosleep(&pause, NULL);
    Py_END_ALLOW_THREADS
    clock_gettime(CLOCK_MONOTONIC, &now);
    double at = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    char text[128];
    ssize_t size = file < 0 ? -1 : pread(file, text, sizeof text - 1, 0);
    unsigned long long cpu, queue;
    if (size > 0) {
        text[size] = 0;
        if (sscanf(text, "%llu %llu", &cpu, &queue) == 2) {
            return Py_BuildValue("dKK", at, cpu, queue);
        }
    }
    return Py_BuildValue("dOO", at, Py_None, Py_None);
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
    empty_bytes = PyBytes_FromStringAndSize("", 0);
    if (empty_bytes == NULL || text(&empty_text, "") < 0 || text(&s_more_body, "more_body") < 0
        || text(&s_write_paused, "write_paused") < 0 || text(&s_span_id, "span_id") < 0
        || text(&s_trace_id, "trace_id") < 0 || text(&s_parent_span_id, "parent_span_id") < 0
        || text(&s_start_ns, "start_ns") < 0 || text(&s_end_ns, "end_ns") < 0 || text(&s_stages, "stages") < 0
        || text(&s_deliver, "deliver") < 0 || text(&s_name, "__name__") < 0
        || text(&s_switch, "switch") < 0 || text(&s_take_kept, "take_kept") < 0 || text(&s_type, "type") < 0
        || text(&s_status, "status") < 0 || text(&s_headers, "headers") < 0 || text(&s_body, "body") < 0
        || text(&s_streaming, "streaming") < 0 || text(&s_first_ns, "first_ns") < 0
        || text(&s_answer_ns, "answer_ns") < 0 || text(&s__start_ns, "_start_ns") < 0
        || text(&s__status, "_status") < 0 || text(&s__framed, "_framed") < 0 || text(&s__size, "_size") < 0
        || text(&s__fast, "_fast") < 0) {
        return -1;
    }
    if (add_type(module, &marks_spec, &marks_type) < 0 || add_type(module, &times_spec, &times_type) < 0
        || add_type(module, &stage_spec, &stage_type) < 0 || add_type(module, &sender_spec, &sender_type) < 0
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
    {"one_chat_text", one_chat_text, METH_O, NULL},
    {"plain_tail", (PyCFunction)(void (*)(void))plain_tail, METH_FASTCALL, NULL},
    {"tcp_info", tcp_info, METH_O, NULL},
    {"probe_tick", probe_tick, METH_VARARGS, NULL},
    {"sender", (PyCFunction)(void (*)(void))make_sender, METH_FASTCALL, NULL},
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
