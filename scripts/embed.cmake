# SPDX-License-Identifier: Apache-2.0
# Writes the texts of FILES into the C file OUT, with the function that finds one by its name.
set(body "// Generated from src/kernels/cuda/*.cu.\n#include \"backends/cuda/cuda_int.h\"\n")
set(rows "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
  string(APPEND body "static const char text_${name}[] = {\n${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", text_${name}},\n")
endforeach()
string(APPEND body "const char *cuda_text(const char *name) {\n    static const struct {\n        const char *name, *text;\n    } k_texts[] = {\n${rows}    };\n    for (size_t i = 0; i < HN_COUNT_OF(k_texts); i++)\n        if (!strcmp(k_texts[i].name, name)) return k_texts[i].text;\n    HN_ASSERT(!\"no such kernel text\");\n    return \"\";\n}\n")
file(WRITE ${OUT} "${body}")
