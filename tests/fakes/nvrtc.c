// SPDX-License-Identifier: Apache-2.0
// A scripted NVRTC: takes any text and gives the first bytes of an ELF file for it. A text that holds
// the words of FAKE_NVRTC_ERROR does not compile. It is 12.9, or 12.FAKE_NVRTC_MINOR.
#include <stdlib.h>
#include <string.h>

static int g_programs;
int fake_nvrtc_programs(void) { return g_programs; }
int nvrtcVersion(int *major, int *minor) { 
    const char *version = getenv("FAKE_NVRTC_MINOR");
    return *major = 12, *minor = version ? atoi(version) : 9, 0;
}
int nvrtcCreateProgram(const char **program, const char *source, const char *name, int headers, const char *const *texts,
                       const char *const *names) {
    (void)name, (void)headers, (void)texts, (void)names;
    return *program = source, g_programs++, 0;
}
int nvrtcDestroyProgram(const char **program) { return *program = NULL, 0; }
int nvrtcCompileProgram(const char *program, int options, const char *const *list) {
    (void)options, (void)list;
    const char *bad = getenv("FAKE_NVRTC_ERROR");
    return bad && strstr(program, bad) ? 6 : 0;
}
static const char k_log[] = "hone.cu(3): warning: something\nhone.cu(7): error: a scripted error\n";
int nvrtcGetProgramLogSize(const char *program, size_t *bytes) { return (void)program, *bytes = sizeof k_log, 0; }
int nvrtcGetProgramLog(const char *program, char *text) { return (void)program, memcpy(text, k_log, sizeof k_log), 0; }
int nvrtcGetCUBINSize(const char *program, size_t *bytes) { return (void)program, *bytes = 16, 0; }
int nvrtcGetCUBIN(const char *program, char *image) { return (void)program, memcpy(image, "\177ELF............", 16), 0; }
int nvrtcGetPTXSize(const char *program, size_t *bytes) { return (void)program, *bytes = 17, 0; }
int nvrtcGetPTX(const char *program, char *text) { return (void)program, memcpy(text, "// a scripted ptx", 17), 0; }
