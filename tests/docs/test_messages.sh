#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every message has its Chinese translation, with the same conversions, and no translation outlives its message;
# README.zh-CN.md has README.md's headings, code, links and table rows. Each kind of fault is planted and found. TEST-TIMEOUT 180
set -u
cd "$HONE_SOURCE_DIR" || exit 1
status=0
scripts/messages || status=1

readme_matches() { # folder
    python3 - "$1" <<'PY'
import re, sys
folder, bad = sys.argv[1], []
def parts(name):
    text = open(f"{folder}/{name}", encoding="utf-8").read()
    code = re.findall(r"^```.*?^```$", text, flags=re.S | re.M)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    return {"code blocks": code, "indented code": re.findall(r"^    \S.*$", prose, flags=re.M),
            "headings": [len(h) for h in re.findall(r"^(#+) ", prose, flags=re.M)],
            "links": sorted(set(re.findall(r"\]\(([^)]+)\)", prose)) - {"README.md", "README.zh-CN.md"}),
            "pictures": re.findall(r'!\[[^\]]*\]\(([^)]+)\)|<img src="([^"]+)"', prose),
            "table rows": len(re.findall(r"^\|", prose, flags=re.M))}
en, zh = parts("README.md"), parts("README.zh-CN.md")
for what in en:
    if en[what] != zh[what]: bad.append(f"README.zh-CN.md has other {what} than README.md")
if not en["code blocks"] or not en["headings"]: bad.append("README.md has no code or headings")
print("\n".join(bad))
sys.exit(bool(bad))
PY
}
readme_matches . || status=1

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
fresh() { rm -rf "$copy/src" "$copy/scripts"; cp -r src scripts README.md README.zh-CN.md "$copy"; }
finds() { # words of the complaint
    if "$copy/scripts/messages" >"$copy/log" 2>&1; then echo "not found: $1"; status=1; return; fi
    grep -q -- "$1" "$copy/log" || { echo "expected '$1' in:"; head -5 "$copy/log"; status=1; }
}
fresh; sed -i '/^HN_ZH("the file is empty"/d' "$copy/src/base/zh/onnx.def"; finds "^no translation: src/onnx/.*the file is empty"
fresh; echo 'HN_CONFIG(zzz, flag, 0, 0, 1, "a setting without translation")' >>"$copy/src/config/config.def"; finds "^no translation: .*a setting without"
fresh; sed -i 's/"the file is empty"/"the file holds nothing"/' "$copy"/src/onnx/*.c; finds "nothing says 'the file is empty' any more"
fresh; sed -i "s/^HN_ZH(\"unknown option '%s'\".*/HN_ZH(\"unknown option '%s'\", \"未知选项\")/" "$copy/src/base/zh/help.def"; finds "conversions of '未知选项'"
fresh; sed -i "s/^HN_ZH(\"unknown option '%s'\".*/HN_ZH(\"unknown option '%s'\", \"未知选项 '%d'\")/" "$copy/src/base/zh/help.def"; finds "conversions of"
fresh; echo 'HN_ZH("the file is empty", "空")' >>"$copy/src/base/zh/base.def"; finds "two translations of 'the file is empty'"
fresh; sed -i 's/^HN_ZH("the file is empty".*/HN_ZH("the file is empty", "")/' "$copy/src/base/zh/onnx.def"; finds "empty translation of 'the file is empty'"
for change in 's/^## Make/Make/' 's/hone inspect model.onnx/hone inspect other.onnx/' 's/docs\/energy.md/docs\/top.md/g' '/^| `soak`/d'; do
    fresh
    sed -i "$change" "$copy/README.zh-CN.md"
    readme_matches "$copy" >/dev/null && { echo "README.zh-CN.md after $change is not found"; status=1; }
done
exit $status
