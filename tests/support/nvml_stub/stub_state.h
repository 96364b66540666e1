/* What the stub's state file says: read again when it changes, asked by key, with the rules that make calls fail.
 *
 * MUSTER_STUB_STATE names the file; it is read again when it changes. Values have no spaces, '~' stands for one.
 *   system driver=580.95.05 init=0 fabric_max=4
 *   gpu uuid=GPU-... pci=0000:0a:00 name=NVIDIA~H100 memory=81559 numa=0 fabric_state=3 cluster=<32 hex> clique=1 ...
 *   mig gpu=0 index=2 uuid=MIG-... gi=3 ci=0 gi_slices=1 ci_slices=1 memory=9728 profile=1g.10gb
 *   rule function=nvmlDeviceGetUUID gpu=1 code=999     the call fails; without gpu= for every GPU
 *   rule function=nvmlDeviceGetName gpu=0 hang=1       the call returns only once the rule is gone */

#ifndef STUB_STATE_H
#define STUB_STATE_H

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
enum { GPUS = 16, MIGS = 112, RULES = 32, LINE = 1024 };

typedef void *device_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char system_line[LINE], gpu_lines[GPUS][LINE], mig_lines[MIGS][LINE], rule_lines[RULES][LINE];
static int gpu_count, mig_count, rule_count, any_lost;
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
    gpu_count = mig_count = rule_count = any_lost = 0;
    char line[LINE];
    while (fgets(line, sizeof line, file)) {
        if (!strncmp(line, "system ", 7)) strcpy(system_line, line);
        any_lost = any_lost || (!strncmp(line, "gpu ", 4) && number(line, "lost", 0));
        if (!strncmp(line, "gpu ", 4) && gpu_count < GPUS) strcpy(gpu_lines[gpu_count++], line);
        if (!strncmp(line, "mig ", 4) && mig_count < MIGS) strcpy(mig_lines[mig_count++], line);
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

/* A handle is the GPU's number and its generation: a reset makes another one. Its lowest four bits say which MIG
 * instance, counted from 1; 0 is the whole GPU. */
static device_t handle_of(int gpu, long generation) {
    return (device_t)(uintptr_t)(((generation << 8 | gpu) + 1) << 4);
}

static int gpu_of(device_t handle) { return (int)(((uintptr_t)handle >> 4) - 1) & 0xff; }
static int mig_of(device_t handle) { return (int)((uintptr_t)handle & 0xf) - 1; }
static device_t whole_of(device_t handle) { return (device_t)((uintptr_t)handle & ~(uintptr_t)0xf); }

static int mig_line(int gpu, int index, char *line) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < mig_count && !found; i++) {
        found = number(mig_lines[i], "gpu", -1) == gpu && number(mig_lines[i], "index", -1) == index;
        if (found) strcpy(line, mig_lines[i]);
    }
    pthread_mutex_unlock(&lock);
    return found ? OK : NOT_FOUND;
}

static int use(device_t handle, const char *function, char *line) {
    int gpu = gpu_of(handle), code = ruled(function, gpu);
    if (code) return code;
    if (gpu >= gpu_count) return LOST;
    read_line(gpu_lines[gpu], line);
    if (number(line, "lost", 0) || whole_of(handle) != handle_of(gpu, number(line, "generation", 0))) return LOST;
    return mig_of(handle) < 0 ? OK : mig_line(gpu, mig_of(handle), line);
}

#define USE(handle) char line[LINE]; { int code = use(handle, __func__, line); if (code) return code; }
#define SYSTEM char line[LINE]; { int code = ruled(__func__, -1); if (code) return code; read_line(system_line, line); }

/* Answer with a field of the GPU's line; a GPU without it does not support the call. */
#define FIELD(key, out) long value = number(line, key, -1); if (value < 0) return NOT_SUPPORTED; *(out) = value; return OK;

#endif
