#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The generated pages of docs/ say what the tables and the help texts say, every link between pages
# leads somewhere, and each command's help names its options.
set -euo pipefail
cd "$HONE_SOURCE_DIR"
scripts/gen-docs --check "$HONE"
status=0
for page in README.md docs/*.md; do
    folder=$(dirname "$page")
    for target in $(grep -oE '\]\([^)#: ]+' "$page" | cut -c3-); do
        [ -e "$folder/$target" ] || { echo "$page: the link to '$target' leads nowhere"; status=1; }
    done
done
# Stale pages are found, and --check changes nothing.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
for file in src/*/*.def; do mkdir -p "$copy/${file%/*}"; cp "$file" "$copy/$file"; done
cp -r scripts docs "$copy"
echo 'HN_PASS(zzz, PORTABLE, false, "a row that no page knows")' >>"$copy/src/passes/passes.def"
if "$copy/scripts/gen-docs" --check "$HONE" >"$copy/log" 2>&1; then echo "a stale page is not found"; status=1; fi
grep -q '^stale: docs/pass-table.md;' "$copy/log" || { cat "$copy/log"; status=1; }
cmp -s docs/pass-table.md "$copy/docs/pass-table.md" || { echo "--check wrote a page"; status=1; }
exit $status
