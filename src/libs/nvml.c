// SPDX-License-Identifier: Apache-2.0
// Where libnvidia-ml is found, and what its results mean.
#include "libs/nvml.h"
#include "base/check.h"

static const hn_lib_symbol k_symbols[] = {
#define HN_SYMBOL(need, result, name, args) HN_LIB_ROW(hn_nvml, need, name),
#include "libs/nvml.def"
#undef HN_SYMBOL
};

// After the loader's own search: WSL, the GPU operator's driver container, device plug-in mounts.
static const char *const k_names[] = {
    "libnvidia-ml.so.1",
    "libnvidia-ml.so",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    NULL,
};

const hn_lib_spec hn_nvml_spec = {
    .title = "NVML (libnvidia-ml)",
    .env_override = "HONE_NVML_LIB",
    .names = k_names,
    .symbols = k_symbols,
    .symbol_count = HN_COUNT_OF(k_symbols),
    .missing_hint = "it comes with the NVIDIA driver; in a container start with the GPUs passed in",
};

const char *hn_nvml_result_text(int result) {
    static const struct {
        int result;
        const char *text;
    } k_texts[] = {
        {HN_NVML_OK, "no error"},
        {HN_NVML_UNINITIALIZED, "NVML is not initialised"},
        {HN_NVML_INVALID_ARGUMENT, "invalid argument"},
        {HN_NVML_NOT_SUPPORTED, "not supported"},
        {HN_NVML_NO_PERMISSION, "no permission"},
        {HN_NVML_NOT_FOUND, "not found"},
        {HN_NVML_INSUFFICIENT_SIZE, "buffer too small"},
        {HN_NVML_DRIVER_NOT_LOADED, "the NVIDIA kernel driver is not loaded"},
        {HN_NVML_TIMEOUT, "timed out"},
        {HN_NVML_LIBRARY_NOT_FOUND, "a library of the driver is missing"},
        {HN_NVML_FUNCTION_NOT_FOUND, "the driver lacks this function"},
        {HN_NVML_GPU_IS_LOST, "the card fell off the bus"},
        {HN_NVML_RESET_REQUIRED, "the card needs a reset"},
        {HN_NVML_VERSION_MISMATCH,
         "libnvidia-ml and the loaded kernel driver are of different versions: the driver was "
         "updated while loaded; reboot, or unload and load its modules"},
        {HN_NVML_NO_DATA, "no data"},
        {HN_NVML_ARGUMENT_VERSION, "the driver knows another version of this call"},
        {HN_NVML_DEPRECATED, "deprecated"},
        {HN_NVML_GPU_NOT_FOUND, "no card was found"},
        {HN_NVML_UNKNOWN,
         "the driver answers 'unknown error'; in a container this is what a host's systemd "
         "daemon-reload leaves behind, when it takes the devices out of the container's control "
         "group: start the container again, and pass the devices by CDI or one by one"},
    };
    for (size_t i = 0; i < HN_COUNT_OF(k_texts); i++)
        if (k_texts[i].result == result) return k_texts[i].text;
    return "an error of the driver";
}
