/* A libnvidia-ml.so.1 without a GPU: a text file says what there is and what goes wrong.
 *
 * MUSTER_STUB_STATE names the file; it is read again when it changes. Values have no spaces, '~' stands for one.
 *   system driver=580.95.05 init=0 fabric_max=4
 *   gpu uuid=GPU-... pci=0000:0a:00 name=NVIDIA~H100 memory=81559 numa=0 fabric_state=3 cluster=<32 hex> clique=1 ...
 *   rule function=nvmlDeviceGetUUID gpu=1 code=999     the call fails; without gpu= for every GPU
 *   rule function=nvmlDeviceGetName gpu=0 hang=1       the call returns only once the rule is gone
 * MUSTER_STUB_EVENTS names a file to which events are appended: "<gpu> <type> <data> <gi> <ci>\n".
 *
 * With noise=1 the library prints, as libraries do. Layouts are those that pynvml declares. */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10,
       NO_FUNCTION = 13, LOST = 15, WRONG_VERSION = 25 };
enum { GPUS = 16, RULES = 32, LINE = 1024 };

typedef void *device_t;
typedef struct { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { uint64_t total, free, used; } memory_t;
typedef struct { uint32_t field, scope; int64_t timestamp, latency; uint32_t type, code; uint64_t value; } field_t;
typedef struct { uint32_t pid; uint64_t used; uint32_t gi, ci; } process_t;
typedef struct { device_t device; uint64_t type, data; uint32_t gi, ci; } event_t;
typedef struct { uint8_t cluster[16]; uint32_t status, clique; uint8_t state; } fabric1_t;
typedef struct { uint32_t version; uint8_t cluster[16]; uint32_t status, clique; uint8_t state; uint32_t mask;
                 uint8_t summary; } fabric3_t; /* version 2 ends before the summary */
typedef struct { uint8_t type; uint32_t id; } clique_t;
typedef struct { uint8_t cluster[16]; uint32_t status; clique_t cliques[64]; uint32_t count; uint8_t state;
                 uint32_t mask; uint8_t summary; } fabric4_t;
_Static_assert(sizeof(pci_t) == 68 && sizeof(memory_t) == 24 && sizeof(field_t) == 40 && sizeof(process_t) == 24 &&
               sizeof(event_t) == 32 && sizeof(fabric1_t) == 28 && offsetof(fabric3_t, summary) == 36 &&
               sizeof(fabric3_t) == 40 && sizeof(fabric4_t) == 548, "the layouts of NVML");

typedef struct { long offset; uint64_t types[GPUS]; } set_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char system_line[LINE], gpu_lines[GPUS][LINE], rule_lines[RULES][LINE];
static int gpu_count, rule_count;
static struct stat last;

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static int text(const char *line, const char *key, char *out, size_t size) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, " %s=", key);
    const char *found = strstr(line, wanted);
    if (!found) { if (size) *out = 0; return 0; }
    size_t n = 0;
    for (found += strlen(wanted); *found > ' ' && n + 1 < size; found++) out[n++] = *found == '~' ? ' ' : *found;
    out[n] = 0;
    return 1;
}

static long number(const char *line, const char *key, long otherwise) {
    char value[64];
    return text(line, key, value, sizeof value) ? strtol(value, NULL, 0) : otherwise;
}

static void load(void) { /* with the lock held */
    const char *path = getenv("MUSTER_STUB_STATE");
    struct stat now;
    if (!path || stat(path, &now)) return;
    if (now.st_ino == last.st_ino && now.st_size == last.st_size && now.st_mtim.tv_sec == last.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == last.st_mtim.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    last = now;
    gpu_count = rule_count = 0;
    char line[LINE];
    while (fgets(line, sizeof line, file)) {
        if (!strncmp(line, "system ", 7)) strcpy(system_line, line);
        if (!strncmp(line, "gpu ", 4) && gpu_count < GPUS) strcpy(gpu_lines[gpu_count++], line);
        if (!strncmp(line, "rule ", 5) && rule_count < RULES) strcpy(rule_lines[rule_count++], line);
    }
    fclose(file);
}

/* Look for a rule about this call; wait while it says hang. */
static int ruled(const char *function, int gpu) {
    for (;;) {
        int code = OK, hang = 0;
        pthread_mutex_lock(&lock);
        load();
        for (int i = 0; i < rule_count; i++) {
            char name[128];
            text(rule_lines[i], "function", name, sizeof name);
            long at = number(rule_lines[i], "gpu", gpu);
            if (!strcmp(name, function) && at == gpu) {
                code = (int)number(rule_lines[i], "code", OK);
                hang = (int)number(rule_lines[i], "hang", 0);
            }
        }
        pthread_mutex_unlock(&lock);
        if (!hang) return code;
        if (getppid() == 1) _exit(1); /* the test that wanted this is over */
        pause_ms(5);
    }
}

static void read_line(const char *from, char *to) {
    pthread_mutex_lock(&lock);
    strcpy(to, from);
    pthread_mutex_unlock(&lock);
}

/* A handle is the GPU's number and its generation: a reset makes another one. */
static device_t handle_of(int gpu, long generation) {
    return (device_t)(uintptr_t)(((generation << 8 | gpu) + 1) << 4);
}

static int gpu_of(device_t handle) { return (int)(((uintptr_t)handle >> 4) - 1) & 0xff; }

static int use(device_t handle, const char *function, char *line) {
    int gpu = gpu_of(handle), code = ruled(function, gpu);
    if (code) return code;
    if (gpu >= gpu_count) return LOST;
    read_line(gpu_lines[gpu], line);
    if (number(line, "lost", 0) || handle != handle_of(gpu, number(line, "generation", 0))) return LOST;
    return OK;
}

#define USE(handle) char line[LINE]; { int code = use(handle, __func__, line); if (code) return code; }
#define SYSTEM char line[LINE]; { int code = ruled(__func__, -1); if (code) return code; read_line(system_line, line); }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags; SYSTEM;
    if (number(line, "noise", 0)) { puts("{\"answers\": 1}\nnoise"); fflush(stdout); }
    return (int)number(line, "init", OK);
}

int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "stub error"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) { SYSTEM; text(line, "driver", out, size); return OK; }

int nvmlDeviceGetCount_v2(unsigned *count) { SYSTEM; *count = (unsigned)gpu_count; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *handle) {
    int code = ruled(__func__, (int)index);
    if (code) return code;
    if ((int)index >= gpu_count) return NOT_FOUND;
    char line[LINE];
    read_line(gpu_lines[index], line);
    *handle = handle_of((int)index, number(line, "generation", 0));
    return OK;
}

int nvmlDeviceGetUUID(device_t h, char *out, unsigned size) { USE(h); text(line, "uuid", out, size); return OK; }
int nvmlDeviceGetName(device_t h, char *out, unsigned size) { USE(h); text(line, "name", out, size); return OK; }

static void fill_pci(const char *place, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    sscanf(place, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0xff);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff, pci->device & 0xff);
}

int nvmlDeviceGetPciInfo_v3(device_t h, pci_t *pci) {
    USE(h);
    char place[32];
    text(line, "pci", place, sizeof place);
    fill_pci(place, pci);
    return OK;
}

int nvmlDeviceGetMemoryInfo(device_t h, memory_t *memory) {
    USE(h);
    *memory = (memory_t){(uint64_t)number(line, "memory", 0) << 20, 0, 0};
    return memory->total ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryAffinity(device_t h, unsigned size, uint64_t *nodes, unsigned scope) {
    USE(h); (void)scope;
    long numa = number(line, "numa", -1);
    if (numa < 0) return NOT_SUPPORTED;
    memset(nodes, 0, size * sizeof *nodes);
    nodes[numa / 64] = 1ull << numa % 64;
    return OK;
}

int nvmlDeviceGetFieldValues(device_t h, int count, field_t *fields) {
    USE(h);
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "fi_%u", fields[i].field);
        long value = number(line, key, -1);
        fields[i].code = value < 0 ? NOT_SUPPORTED : OK;
        fields[i].type = 1;
        fields[i].value = value < 0 ? 0xdeadbeef : (uint64_t)value;
    }
    return OK;
}

int nvmlDeviceGetRemappedRows(device_t h, unsigned *corr, unsigned *unc, unsigned *pending, unsigned *failure) {
    USE(h);
    long state = number(line, "remap", -1); /* 1 pending, 2 failure */
    if (state < 0) return NOT_SUPPORTED;
    *corr = *unc = 0; *pending = state & 1; *failure = state >> 1 & 1;
    return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(device_t h, unsigned *pending) {
    USE(h);
    long state = number(line, "retired", -1);
    if (state < 0) return NOT_SUPPORTED;
    *pending = (unsigned)state;
    return OK;
}

static void cluster_of(const char *line, uint8_t *cluster) {
    char hex[40];
    memset(cluster, 0, 16);
    text(line, "cluster", hex, sizeof hex);
    for (int i = 0; i < 16 && strlen(hex) >= 32; i++) sscanf(hex + 2 * i, "%2hhx", &cluster[i]);
}

static long fabric_max(void) { char line[LINE]; read_line(system_line, line); return number(line, "fabric_max", 4); }

/* The state is one byte; what lies beside it keeps whatever the caller's memory held. */
#define FILL(info) \
    cluster_of(line, (info)->cluster); \
    (info)->status = (uint32_t)number(line, "fabric_status", OK); \
    (info)->state = (uint8_t)number(line, "fabric_state", 0);

int nvmlDeviceGetGpuFabricInfo(device_t h, fabric1_t *info) {
    USE(h);
    FILL(info);
    info->clique = (uint32_t)number(line, "clique", 0);
    return OK;
}

int nvmlDeviceGetGpuFabricInfoV(device_t h, fabric3_t *info) {
    USE(h);
    long newest = fabric_max();
    int third = info->version == 0x03000028 && newest >= 3, second = info->version == 0x02000024 && newest >= 2;
    if (newest < 2) return NO_FUNCTION;
    if (!third && !second) return WRONG_VERSION;
    memset(&info->state, 0xaa, 4);
    FILL(info);
    info->clique = (uint32_t)number(line, "clique", 0);
    info->mask = (uint32_t)number(line, "health_mask", 0);
    if (third) info->summary = (uint8_t)number(line, "health", 0);
    return OK;
}

int nvmlDeviceGetGpuFabricInfo_v4(device_t h, fabric4_t *info) {
    USE(h);
    if (fabric_max() < 4) return NO_FUNCTION;
    FILL(info);
    info->cliques[0] = (clique_t){1, 77}; /* multicast comes first here, as nothing forbids */
    info->cliques[1] = (clique_t){0, (uint32_t)number(line, "clique", 0)};
    info->count = 2;
    info->mask = (uint32_t)number(line, "health_mask", 0);
    info->summary = (uint8_t)number(line, "health", 0);
    return OK;
}

/* links=N: every link leads to a switch, or with peer=K to GPU K. */
static int link_of(const char *line, unsigned link) {
    long links = number(line, "links", 0);
    return links == 0 ? NOT_SUPPORTED : link >= (unsigned long)links ? INVALID_ARGUMENT : OK;
}

int nvmlDeviceGetNvLinkState(device_t h, unsigned link, unsigned *active) {
    USE(h);
    *active = (unsigned)number(line, "links_up", 1);
    return link_of(line, link);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(device_t h, unsigned link, unsigned *kind) {
    USE(h);
    *kind = number(line, "peer", -1) < 0 ? 2 : 0;
    return link_of(line, link);
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t h, unsigned link, pci_t *pci) {
    USE(h);
    char peer[LINE], place[32];
    long gpu = number(line, "peer", -1);
    if (gpu < 0 || gpu >= gpu_count) return NOT_SUPPORTED;
    read_line(gpu_lines[gpu], peer);
    text(peer, "pci", place, sizeof place);
    fill_pci(place, pci);
    return link_of(line, link);
}

static int processes(const char *line, const char *key, unsigned *count, process_t *out) {
    char pids[256], *rest;
    text(line, key, pids, sizeof pids);
    unsigned room = *count, found = 0;
    for (char *pid = strtok_r(pids, ",", &rest); pid; pid = strtok_r(NULL, ",", &rest), found++)
        if (out && found < room) out[found] = (process_t){(uint32_t)strtoul(pid, NULL, 0), 0, ~0u, ~0u};
    *count = found;
    return found > room ? TOO_SMALL : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t h, unsigned *count, process_t *out) {
    USE(h); return processes(line, "compute", count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t h, unsigned *count, process_t *out) {
    USE(h); return processes(line, "graphics", count, out);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t h, unsigned *count, process_t *out) {
    USE(h); return processes(line, "mps", count, out);
}

int nvmlEventSetCreate(set_t **set) {
    SYSTEM; (void)line;
    struct stat events;
    const char *path = getenv("MUSTER_STUB_EVENTS");
    *set = calloc(1, sizeof **set);
    (*set)->offset = path && !stat(path, &events) ? (long)events.st_size : 0; /* nothing that happened before */
    return OK;
}

int nvmlEventSetFree(set_t *set) { free(set); return OK; }

int nvmlDeviceGetSupportedEventTypes(device_t h, uint64_t *types) {
    USE(h);
    *types = (uint64_t)number(line, "events", 0xff8f);
    return *types ? OK : NOT_SUPPORTED;
}

int nvmlDeviceRegisterEvents(device_t h, uint64_t types, set_t *set) {
    USE(h);
    if (types & ~(uint64_t)number(line, "events", 0xff8f)) return NOT_SUPPORTED;
    set->types[gpu_of(h)] |= types;
    return OK;
}

static int next_event(set_t *set, event_t *event) {
    const char *path = getenv("MUSTER_STUB_EVENTS");
    FILE *file = path ? fopen(path, "r") : NULL;
    char entry[128];
    int gpu = 0, found = 0;
    if (!file) return 0;
    fseek(file, set->offset, SEEK_SET);
    while (!found && fgets(entry, sizeof entry, file) && strchr(entry, '\n')) { /* a half line waits for its end */
        long long type, data, gi, ci;
        set->offset = ftell(file);
        if (sscanf(entry, "%d %lli %lli %lli %lli", &gpu, &type, &data, &gi, &ci) != 5 || gpu >= GPUS) continue;
        *event = (event_t){NULL, (uint64_t)type, (uint64_t)data, (uint32_t)gi, (uint32_t)ci};
        found = (set->types[gpu] & (uint64_t)type) != 0;
    }
    fclose(file);
    char line[LINE];
    read_line(gpu_lines[gpu], line);
    event->device = handle_of(gpu, number(line, "generation", 0));
    return found;
}

int nvmlEventSetWait_v2(set_t *set, event_t *event, unsigned timeout_ms) {
    for (unsigned waited = 0;; waited += 5) {
        int code = ruled(__func__, -1);
        if (code) return code;
        if (next_event(set, event)) return OK;
        for (int gpu = 0; gpu < gpu_count; gpu++) {
            char line[LINE];
            read_line(gpu_lines[gpu], line);
            if (set->types[gpu] && number(line, "lost", 0)) return LOST; /* and it does not say which */
        }
        if (waited >= timeout_ms) return TIMEOUT;
        pause_ms(5);
    }
}
