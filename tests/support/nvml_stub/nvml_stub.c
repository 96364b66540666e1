/* A libnvidia-ml.so.1 without a GPU: a text file says what there is and what goes wrong.
 *
 * MUSTER_STUB_STATE names it; stub_state.h says how it is written.
 * MUSTER_STUB_EVENTS names a file to which events are appended: "<gpu> <type> <data> <gi> <ci>\n".
 *
 * With noise=1 the library prints, as libraries do. Layouts are those that pynvml declares. */

#include "stub_state.h"

typedef struct { char legacy[16]; uint32_t domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { uint64_t total, free, used; } memory_t;
typedef struct { uint32_t field, scope; int64_t timestamp, latency; uint32_t type, code; uint64_t value; } field_t;
typedef struct { uint32_t pid; uint64_t used; uint32_t gi, ci; } process_t;
typedef struct { device_t device; uint64_t type, data; uint32_t gi, ci; } event_t;
typedef struct { uint32_t version; uint64_t counts[11]; uint32_t exceeded; } sram_t;
typedef struct { uint32_t processors, engines[5], gi_slices, ci_slices; uint64_t memory; } attributes_t;
typedef struct { uint8_t cluster[16]; uint32_t status, clique; uint8_t state; } fabric1_t;
typedef struct { uint32_t version; uint8_t cluster[16]; uint32_t status, clique; uint8_t state; uint32_t mask;
                 uint8_t summary; } fabric3_t; /* version 2 ends before the summary */
typedef struct { uint8_t type; uint32_t id; } clique_t;
typedef struct { uint8_t cluster[16]; uint32_t status; clique_t cliques[64]; uint32_t count; uint8_t state;
                 uint32_t mask; uint8_t summary; } fabric4_t;
_Static_assert(sizeof(pci_t) == 68 && sizeof(memory_t) == 24 && sizeof(field_t) == 40 && sizeof(process_t) == 24 &&
               sizeof(event_t) == 32 && sizeof(sram_t) == 104 && sizeof(attributes_t) == 40 &&
               sizeof(fabric1_t) == 28 && offsetof(fabric3_t, summary) == 36 &&
               sizeof(fabric3_t) == 40 && sizeof(fabric4_t) == 548, "the layouts of NVML");

typedef struct { long offset; uint64_t types[GPUS]; } set_t;

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

int nvmlDeviceGetName(device_t h, char *out, unsigned size) {
    USE(h);
    char profile[32];
    text(line, "name", out, size);
    if (text(line, "profile", profile, sizeof profile)) snprintf(out, size, "NVIDIA H100 80GB HBM3 MIG %s", profile);
    if (number(line, "name_broken", 0)) strcpy(out, "NVIDIA \xff\xfe");
    return OK;
}

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

/* Each address is 0: only how many there are is ever asked for. */
int nvmlDeviceGetRetiredPages(device_t h, unsigned cause, unsigned *count, uint64_t *pages) {
    USE(h);
    long found = number(line, cause ? "retired_double" : "retired_single", -1);
    if (found < 0) return NOT_SUPPORTED;
    unsigned room = *count;
    *count = (unsigned)found;
    if (!pages || room < *count) return *count ? TOO_SMALL : OK;
    memset(pages, 0, *count * sizeof *pages);
    return OK;
}

int nvmlDeviceGetEccMode(device_t h, unsigned *current, unsigned *pending) {
    USE(h);
    *pending = (unsigned)number(line, "ecc", 0);
    FIELD("ecc", current)
}

/* ecc_00 corrected since load, ecc_10 uncorrected since load, ecc_11 uncorrected ever */
int nvmlDeviceGetTotalEccErrors(device_t h, unsigned kind, unsigned since, uint64_t *count) {
    USE(h);
    char key[32];
    snprintf(key, sizeof key, "ecc_%u%u", kind, since);
    *count = (uint64_t)number(line, key, 0);
    return number(line, "ecc", -1) == 1 ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetSramEccErrorStatus(device_t h, sram_t *status) {
    USE(h);
    if (status->version != 0x1000068) return WRONG_VERSION;
    FIELD("sram_exceeded", &status->exceeded)
}

int nvmlDeviceGetPersistenceMode(device_t h, unsigned *mode) { USE(h); FIELD("persistence", mode) }
int nvmlDeviceGetCurrentClocksEventReasons(device_t h, uint64_t *reasons) { USE(h); FIELD("clocks", reasons) }
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t h, uint64_t *reasons) { USE(h); FIELD("clocks", reasons) }

int nvmlDeviceGetMigMode(device_t h, unsigned *current, unsigned *pending) {
    USE(h);
    *pending = (unsigned)number(line, "mig_pending", number(line, "mig", 0));
    FIELD("mig", current)
}

int nvmlDeviceGetMaxMigDeviceCount(device_t h, unsigned *count) { USE(h); FIELD("mig_max", count) }

int nvmlDeviceGetMigDeviceHandleByIndex(device_t h, unsigned index, device_t *instance) {
    USE(h);
    if (!number(line, "mig", 0)) return NOT_SUPPORTED;
    if (index > 14) return INVALID_ARGUMENT;
    *instance = (device_t)((uintptr_t)h | (index + 1));
    return mig_line(gpu_of(h), (int)index, line);
}

int nvmlDeviceGetGpuInstanceId(device_t h, unsigned *id) { USE(h); FIELD("gi", id) }
int nvmlDeviceGetComputeInstanceId(device_t h, unsigned *id) { USE(h); FIELD("ci", id) }

int nvmlDeviceGetAttributes_v2(device_t h, attributes_t *told) {
    USE(h);
    if (mig_of(h) < 0) return NOT_SUPPORTED;
    memset(told, 0, sizeof *told);
    told->gi_slices = (uint32_t)number(line, "gi_slices", 1);
    told->ci_slices = (uint32_t)number(line, "ci_slices", 1);
    told->memory = (uint64_t)number(line, "memory", 0);
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

/* links=N: every link leads to a switch, or with peer=K to GPU K. links_down=1,4 are down, links_gap=2,3 not there. */
static int listed(const char *line, const char *key, unsigned link) {
    char list[128], *rest;
    text(line, key, list, sizeof list);
    for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
        if (strtoul(one, NULL, 0) == link) return 1;
    return 0;
}

static int link_of(const char *line, unsigned link) {
    long links = number(line, "links", 0);
    if (links == 0 || listed(line, "links_gap", link)) return NOT_SUPPORTED;
    return link >= (unsigned long)links ? INVALID_ARGUMENT : OK;
}

int nvmlDeviceGetNvLinkState(device_t h, unsigned link, unsigned *active) {
    USE(h);
    *active = number(line, "links_up", 1) && !listed(line, "links_down", link);
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

/* p2p=5: what this GPU says of its reach to any other */
int nvmlDeviceGetP2PStatus(device_t h, device_t peer, unsigned capability, unsigned *status) {
    USE(h);
    char other[LINE];
    int code = use(peer, __func__, other);
    long mine = number(line, "p2p", OK), theirs = code ? OK : number(other, "p2p", OK);
    *status = capability != 2 ? 0u : (unsigned)(mine ? mine : theirs);
    return code;
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
    struct stat now;
    if (!path || stat(path, &now) || now.st_size <= set->offset) return 0; /* a wait must cost next to nothing */
    FILE *file = fopen(path, "r");
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
    for (unsigned waited = 0;; waited += 20) {
        int code = ruled(__func__, -1);
        if (code) return code;
        if (next_event(set, event)) return OK;
        for (int gpu = 0; any_lost && gpu < gpu_count; gpu++) {
            char line[LINE];
            read_line(gpu_lines[gpu], line);
            if (set->types[gpu] && number(line, "lost", 0)) return LOST; /* and it does not say which */
        }
        if (waited >= timeout_ms) return TIMEOUT;
        pause_ms(20);
    }
}
