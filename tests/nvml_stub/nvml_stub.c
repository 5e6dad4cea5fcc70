/* A libnvidia-ml.so.1 without a GPU, for tests and benchmarks under the real pynvml.
 *
 * State is a table of key -> number. In process: stub_set(key, value), stub_reset(). From another process: a file of
 * "key value" lines named by NVML_STUB_STATE, read again when it changes. Keys:
 *   gpus 8                    number of GPUs              driver 580              driver's major version
 *   init 9                    error of nvmlInit           arch 7                  7 = Ampere: no GPM
 *   err.SYMBOL 3              error of a call             err.SYMBOL.GPU 15       on one GPU only
 *   field.ID.err 3            error of a field            field.ID.value N        its value, whatever the time
 *   field.ID.type 1           its value type              mig.GPU 2               MIG on, with so many instances
 *   sleep_ms.SYMBOL 20        the call takes so long      lost.GPU 1              every call on it says GPU_IS_LOST
 *   xid 79                    one event, on GPU 0         util.GPU 50             utilisation in percent
 *   pid 123                   one more compute process    order 1                 NVML lists GPUs from the last bus down
 *   gpm.2 180                 SM activity in percent
 *   vgpu 1                    guests of a hypervisor: a share of a GPU, most of it not supported
 *   samples.SKEW N            microseconds by which the clock of buffered samples is ahead
 * Behaviour that no driver documents: GPM answers NaN for samples less than 100 ms apart.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 16
#define MAX_MIG 7
#define MAX_KEYS 512
#define LINKS 18
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT = 7, TIMEOUT = 10, LOST = 15 };
enum { T_DOUBLE = 0, T_UINT = 1, T_ULL = 3, T_SLL = 4, T_SINT = 5 };

typedef struct { int gpu, mig; } Handle;
typedef struct { char key[64]; double value; } Entry;
typedef struct { uint32_t id, scope; int64_t stamp, latency; uint32_t type, ret; uint64_t value; } Field;
typedef struct { uint32_t id, ret; double value; void *info[3]; } Metric;
typedef struct { uint32_t version, count; void *older, *newer; Metric metrics[]; } MetricsGet;
typedef struct { int64_t us; int gpu, instance; } Sample;
typedef struct { uint64_t stamp, value; } BufferedSample;
typedef struct { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { uint32_t pid; uint64_t memory; uint32_t gpu_instance, compute_instance; } Process;
typedef struct { void *device; uint64_t type, data; uint32_t gpu_instance, compute_instance; } Event;

static Entry table[MAX_KEYS];
static int entries, initialized, xid_sent;
static Handle handles[MAX_GPUS][MAX_MIG + 1];
static int64_t born_us;
static struct timespec file_time;
static off_t file_size;

static int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

void stub_set(const char *key, double value) {
  for (int i = 0; i < entries; i++)
    if (!strcmp(table[i].key, key)) { table[i].value = value; return; }
  if (entries < MAX_KEYS) {
    snprintf(table[entries].key, sizeof table[entries].key, "%s", key);
    table[entries++].value = value;
  }
}

void stub_reset(void) { entries = 0; xid_sent = 0; initialized = 0; born_us = now_us(); }

static void reread(void) {
  const char *path = getenv("NVML_STUB_STATE");
  struct stat s;
  if (!path || stat(path, &s)) return;
  if (s.st_mtim.tv_sec == file_time.tv_sec && s.st_mtim.tv_nsec == file_time.tv_nsec && s.st_size == file_size) return;
  file_time = s.st_mtim; file_size = s.st_size;
  FILE *f = fopen(path, "r");
  if (!f) return;
  char key[64]; double value;
  entries = 0;
  while (fscanf(f, "%63s %lf", key, &value) == 2) stub_set(key, value);
  fclose(f);
}

static int has(const char *key, double *value) {
  for (int i = 0; i < entries; i++)
    if (!strcmp(table[i].key, key)) { *value = table[i].value; return 1; }
  return 0;
}

static double get(const char *key, double otherwise) { double v; return has(key, &v) ? v : otherwise; }
static double get_n(const char *prefix, int n, double otherwise) {
  if (!entries) return otherwise;
  char key[64];
  snprintf(key, sizeof key, "%s.%d", prefix, n);
  return get(key, otherwise);
}

/* What the driver of a guest answers to. */
static int in_guest(const char *symbol) {
  static const char *known[] = {"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMigMode",
    "nvmlDeviceGetVirtualizationMode", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetComputeRunningProcesses_v3"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(symbol, known[i])) return 1;
  return 0;
}

/* Every call passes here: counts as slow, fails, or goes on. */
static int enter(const char *symbol, void *h) {
  reread();
  if (entries) {
    char key[96];
    double value;
    snprintf(key, sizeof key, "sleep_ms.%s", symbol);
    if (has(key, &value)) usleep((useconds_t)(value * 1000));
    snprintf(key, sizeof key, "err.%s", symbol);
    if (has(key, &value) && value) return (int)value;
    if (h) {
      int gpu = ((Handle *)h)->gpu;
      snprintf(key, sizeof key, "err.%s.%d", symbol, gpu);
      if (has(key, &value) && value) return (int)value;
      if (get_n("lost", gpu, 0)) return LOST;
      if (get("vgpu", 0) && !in_guest(symbol)) return NOT_SUPPORTED;
    }
  }
  return initialized > 0 ? OK : UNINITIALIZED;
}
#define ENTER(symbol, h) do { int e_ = enter(#symbol, h); if (e_) return e_; } while (0)
#define GPU(h) (((Handle *)(h))->gpu)
#define MIG(h) (((Handle *)(h))->mig)

static int gpu_count(void) { int n = (int)get("gpus", 8); return n > MAX_GPUS ? MAX_GPUS : n; }

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  reread();
  if (!born_us) born_us = now_us();
  int error = (int)get("init", 0);
  if (error) return error;
  for (int g = 0; g < MAX_GPUS; g++)
    for (int m = 0; m <= MAX_MIG; m++) handles[g][m] = (Handle){g, m};
  initialized++;
  return OK;
}
int nvmlShutdown(void) { if (initialized <= 0) return UNINITIALIZED; initialized--; return OK; }
const char *nvmlErrorString(int code) { static char text[32]; snprintf(text, sizeof text, "stub error %d", code); return text; }
int nvmlSystemGetDriverVersion(char *out, unsigned n) { ENTER(nvmlSystemGetDriverVersion, NULL); snprintf(out, n, "%d.65.06", (int)get("driver", 580)); return OK; }
int nvmlDeviceGetCount_v2(unsigned *n) { ENTER(nvmlDeviceGetCount_v2, NULL); *n = gpu_count(); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
  ENTER(nvmlDeviceGetHandleByIndex_v2, NULL);
  if ((int)i >= gpu_count()) return INVALID;
  if (get_n("gone", i, 0)) return LOST;
  *h = &handles[get("order", 0) ? gpu_count() - 1 - (int)i : (int)i][0];
  return OK;
}
int nvmlDeviceGetUUID(void *h, char *out, unsigned n) {
  ENTER(nvmlDeviceGetUUID, h);
  if (MIG(h)) snprintf(out, n, "MIG-%08x-0000-0000-0000-%012x", GPU(h), MIG(h));
  else snprintf(out, n, "GPU-%08x-0000-0000-0000-000000000000", GPU(h));
  return OK;
}
int nvmlDeviceGetName(void *h, char *out, unsigned n) { ENTER(nvmlDeviceGetName, h); snprintf(out, n, "NVIDIA H100 80GB HBM3"); return OK; }
int nvmlDeviceGetPciInfo_v3(void *h, Pci *p) {
  ENTER(nvmlDeviceGetPciInfo_v3, h);
  memset(p, 0, sizeof *p);
  p->bus = 0x10 + GPU(h);
  snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", p->bus);
  return OK;
}
int nvmlDeviceGetVirtualizationMode(void *h, unsigned *mode) { ENTER(nvmlDeviceGetVirtualizationMode, h); *mode = get("vgpu", 0) ? 2 : 0; return OK; }
int nvmlDeviceGetSamples(void *h, unsigned kind, uint64_t last_us, unsigned *type, unsigned *n, BufferedSample *out) {
  /* A reading each 166 ms, at most 100 kept: as the driver does it. */
  ENTER(nvmlDeviceGetSamples, h);
  if (get_n("mig", GPU(h), 0) || (kind != 1 && kind != 2)) return NOT_SUPPORTED;
  int64_t skew = (int64_t)get("samples.SKEW", 0), period = 166667, newest = now_us() / period, last = (int64_t)last_us - skew;
  int64_t since = last > 0 ? last / period : newest - 100;
  if (since < newest - 100) since = newest - 100;
  unsigned there = newest > since ? (unsigned)(newest - since) : 0;
  if (!there) return NOT_FOUND;
  *type = T_UINT;
  if (out) {
    for (unsigned i = 0; i < there && i < *n; i++) {
      out[i].stamp = (uint64_t)((since + 1 + i) * period + skew);
      out[i].value = 0xDEADBEEF00000000ull | (unsigned)(kind == 1 ? get_n("util", GPU(h), 50) : 30);
    }
    if (there < *n) *n = there;
  } else *n = there;
  return OK;
}
int nvmlDeviceGetUtilizationRates(void *h, unsigned *u) {
  ENTER(nvmlDeviceGetUtilizationRates, h);
  if (get_n("mig", GPU(h), 0)) return NOT_SUPPORTED;
  u[0] = (unsigned)get_n("util", GPU(h), 50); u[1] = 30;
  return OK;
}
int nvmlDeviceGetMemoryInfo(void *h, uint64_t *m) {
  ENTER(nvmlDeviceGetMemoryInfo, h);
  m[0] = 80ull << 30; m[2] = 41ull << 30; m[1] = m[0] - m[2];
  return OK;
}
int nvmlDeviceGetMemoryInfo_v2(void *h, void *out) {
  ENTER(nvmlDeviceGetMemoryInfo_v2, h);
  if (*(uint32_t *)out != 0x02000028) return 25;
  uint64_t *m = (uint64_t *)out;
  m[1] = (MIG(h) ? 10ull : 80ull) << 30; m[2] = 1ull << 30; m[4] = (MIG(h) ? 5ull : 40ull) << 30; m[3] = m[1] - m[2] - m[4];
  return OK;
}
int nvmlDeviceGetPowerUsage(void *h, unsigned *mw) { ENTER(nvmlDeviceGetPowerUsage, h); *mw = 350000; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *mw) { ENTER(nvmlDeviceGetEnforcedPowerLimit, h); *mw = 700000; return OK; }
int nvmlDeviceGetTemperatureV(void *h, void *t) { ENTER(nvmlDeviceGetTemperatureV, h); ((int *)t)[2] = 61; return OK; }
int nvmlDeviceGetTemperature(void *h, unsigned s, unsigned *t) { (void)s; ENTER(nvmlDeviceGetTemperature, h); *t = 60; return OK; }
int nvmlDeviceGetClockInfo(void *h, unsigned kind, unsigned *mhz) { ENTER(nvmlDeviceGetClockInfo, h); *mhz = kind == 2 ? 2619 : 1755; return OK; }
int nvmlDeviceGetMaxClockInfo(void *h, unsigned kind, unsigned *mhz) { ENTER(nvmlDeviceGetMaxClockInfo, h); *mhz = kind == 2 ? 2619 : 1980; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(void *h, uint64_t *bits) { ENTER(nvmlDeviceGetCurrentClocksEventReasons, h); *bits = 0x4; return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, uint64_t *bits) { ENTER(nvmlDeviceGetCurrentClocksThrottleReasons, h); *bits = 0x8; return OK; }
int nvmlDeviceGetPcieThroughput(void *h, unsigned kind, unsigned *kb) {
  int slow = enter("nvmlDeviceGetPcieThroughput", h);
  if (slow) return slow;
  usleep((useconds_t)(get("pcie_ms", 20) * 1000));
  *kb = (unsigned)get("pcie_kb", kind == 0 ? 1000000 : 2000000);
  return OK;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void *h, unsigned *g) { ENTER(nvmlDeviceGetCurrPcieLinkGeneration, h); *g = 5; return OK; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *h, unsigned *g) { ENTER(nvmlDeviceGetMaxPcieLinkGeneration, h); *g = 5; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(void *h, unsigned *w) { ENTER(nvmlDeviceGetCurrPcieLinkWidth, h); *w = 16; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(void *h, unsigned *w) { ENTER(nvmlDeviceGetMaxPcieLinkWidth, h); *w = 16; return OK; }
int nvmlDeviceGetPcieReplayCounter(void *h, unsigned *n) { ENTER(nvmlDeviceGetPcieReplayCounter, h); *n = (unsigned)get("replays", 3); return OK; }
int nvmlDeviceGetTotalEccErrors(void *h, unsigned kind, unsigned counter, uint64_t *n) { (void)counter; ENTER(nvmlDeviceGetTotalEccErrors, h); *n = (uint64_t)get(kind ? "ecc.1" : "ecc.0", 0); return OK; }
int nvmlDeviceGetRemappedRows(void *h, unsigned *c, unsigned *u, unsigned *p, unsigned *f) { ENTER(nvmlDeviceGetRemappedRows, h); *c = 2; *u = 1; *p = *f = 0; return OK; }
int nvmlDeviceGetNvLinkState(void *h, unsigned link, unsigned *active) {
  ENTER(nvmlDeviceGetNvLinkState, h);
  if (link >= LINKS) return INVALID;
  *active = (int)link < (int)get("links_up", LINKS) ? 1 : 0;
  return OK;
}
int nvmlDeviceGetMigMode(void *h, unsigned *current, unsigned *pending) { ENTER(nvmlDeviceGetMigMode, h); *current = *pending = get_n("mig", GPU(h), 0) > 0; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *n) { ENTER(nvmlDeviceGetMaxMigDeviceCount, h); *n = get_n("mig", GPU(h), 0) > 0 ? MAX_MIG : 0; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned i, void **out) {
  ENTER(nvmlDeviceGetMigDeviceHandleByIndex, h);
  /* sparse, as on a real GPU: the even indices are taken */
  if (i % 2 || (int)i / 2 >= (int)get_n("mig", GPU(h), 0)) return NOT_FOUND;
  *out = &handles[GPU(h)][i / 2 + 1];
  return OK;
}
int nvmlDeviceGetGpuInstanceId(void *h, unsigned *id) { ENTER(nvmlDeviceGetGpuInstanceId, h); *id = MIG(h) + 4; return OK; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, Process *out) {
  ENTER(nvmlDeviceGetComputeRunningProcesses_v3, h);
  double pid;
  unsigned there = 1 + has("pid", &pid);
  if (*n < there) { *n = there; return INSUFFICIENT; }
  out[0] = (Process){4000000, 1ull << 30, 0xFFFFFFFF, 0xFFFFFFFF};
  if (there == 2) out[1] = (Process){(uint32_t)pid, 2ull << 30, 0xFFFFFFFF, 0xFFFFFFFF};
  *n = there;
  return OK;
}

static void fill(Field *f, int gpu) {
  char key[64];
  double value;
  int64_t now = now_us();
  double s = (now - born_us) / 1e6;
  uint64_t v = 0;
  uint32_t type = T_ULL;
  f->ret = OK; f->stamp = now; f->latency = 1; f->value = 0;
  switch (f->id) {
    case 74: v = (uint64_t)(s * 1e7); break;
    case 76: case 269: case 270: case 271: v = 0; break;
    case 82: v = 70; type = T_UINT; break;
    case 83: v = (uint64_t)(s * 350e3) + 5000; break;
    case 91: v = LINKS; type = T_UINT; break;
    case 138: v = (uint64_t)(s * 1e9 / 1024); break;
    case 139: v = (uint64_t)(s * 2e9 / 1024); break;
    case 140: v = (uint64_t)(s * 1.1e9 / 1024); break;
    case 141: v = (uint64_t)(s * 2.2e9 / 1024); break;
    case 164: v = 26562; type = T_UINT; break;
    case 186: v = 345000; type = T_UINT; break;
    case 193: type = T_SINT; v = (uint32_t)-7; break;
    case 197: v = (uint64_t)(s * 3e9); break;
    case 198: v = (uint64_t)(s * 4e9); break;
    default: f->ret = INVALID; return;
  }
  if (entries) {
    if (get("vgpu", 0)) { f->ret = NOT_SUPPORTED; return; }
    snprintf(key, sizeof key, "field.%u.err", f->id);
    if (has(key, &value) && value) { f->ret = (uint32_t)value; return; }
    snprintf(key, sizeof key, "field.%u.value", f->id);
    if (has(key, &value)) v = (uint64_t)value;
    snprintf(key, sizeof key, "field.%u.type", f->id);
    if (has(key, &value)) type = (uint32_t)value;
  }
  (void)gpu;
  f->type = type;
  if (type == T_DOUBLE) { double d = (double)v; memcpy(&f->value, &d, 8); }
  else if (type == T_UINT || type == T_SINT) {
    /* the upper half of the union is not the driver's: fill it with noise */
    f->value = 0xDEADBEEF00000000ull | (uint32_t)v;
  } else f->value = v;
}
int nvmlDeviceGetFieldValues(void *h, int n, Field *fields) {
  ENTER(nvmlDeviceGetFieldValues, h);
  for (int i = 0; i < n; i++) fill(&fields[i], GPU(h));
  return OK;
}

int nvmlGpmQueryDeviceSupport(void *h, unsigned *s) { ENTER(nvmlGpmQueryDeviceSupport, h); s[1] = get("arch", 9) >= 9; return OK; }
int nvmlGpmSampleAlloc(void **s) { ENTER(nvmlGpmSampleAlloc, NULL); *s = calloc(1, sizeof(Sample)); return OK; }
int nvmlGpmSampleFree(void *s) { free(s); return initialized > 0 ? OK : UNINITIALIZED; }
int nvmlGpmSampleGet(void *h, void *s) { ENTER(nvmlGpmSampleGet, h); if (get("arch", 9) < 9) return NOT_SUPPORTED; *(Sample *)s = (Sample){now_us(), GPU(h), 0}; return OK; }
int nvmlGpmMigSampleGet(void *h, unsigned instance, void *s) { ENTER(nvmlGpmMigSampleGet, h); *(Sample *)s = (Sample){now_us(), GPU(h), (int)instance}; return OK; }
int nvmlGpmMetricsGet(MetricsGet *q) {
  ENTER(nvmlGpmMetricsGet, NULL);
  if (q->version != 1) return 25;
  Sample *a = q->older, *b = q->newer;
  double s = (b->us - a->us) / 1e6;
  for (unsigned i = 0; i < q->count; i++) {
    Metric *m = &q->metrics[i];
    m->ret = OK;
    switch (m->id) {
      case 1: m->value = 80; break;
      case 2: m->value = get("gpm.2", 70); break;
      case 3: m->value = 40; break;
      case 5: m->value = 30; break;
      case 10: m->value = 55; break;
      case 20: m->value = 100; break;
      case 21: m->value = 200; break;
      case 60: m->value = 300; break;
      case 61: m->value = 400; break;
      default: m->ret = NOT_SUPPORTED; m->value = 0;
    }
    if (s < 0.0999) m->value = NAN;
  }
  return OK;
}

int nvmlEventSetCreate(void **s) { ENTER(nvmlEventSetCreate, NULL); *s = malloc(1); return OK; }
int nvmlEventSetFree(void *s) { free(s); return OK; }
int nvmlDeviceRegisterEvents(void *h, uint64_t types, void *s) { (void)types; (void)s; ENTER(nvmlDeviceRegisterEvents, h); return OK; }
int nvmlEventSetWait_v2(void *s, Event *e, unsigned ms) {
  (void)s;
  int64_t until = now_us() + ms * 1000LL;
  do {
    ENTER(nvmlEventSetWait_v2, NULL);
    double xid;
    if (!xid_sent && has("xid", &xid)) {
      xid_sent = 1;
      *e = (Event){&handles[0][0], 8, (uint64_t)xid, 0xFFFFFFFF, 0xFFFFFFFF};
      return OK;
    }
    usleep(250000); /* a driver sleeps until there is something; polling often would be charged to the sampler */
  } while (now_us() < until);
  return TIMEOUT;
}
