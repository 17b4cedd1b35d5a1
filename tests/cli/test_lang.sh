#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --lang from the command line: where it may stand, what chooses the language without it, that every help text and
# a report are Chinese, that JSON and exit statuses are not touched. TEST-TIMEOUT 120
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
model=$HONE_SOURCE_DIR/examples/fashion/fashion_resnet.onnx
fail() { echo "FAILED: $*"; exit 1; }
unset HONE_LANG LC_ALL LC_MESSAGES LANG
says() { # words status command...
    local words=$1 want=$2
    shift 2
    "$@" >"$dir/out" 2>&1
    [ $? = "$want" ] || fail "not exit $want: $*"
    grep -q -- "$words" "$dir/out" || fail "'$words' is not in: $* ($(cat "$dir/out"))"
}
zh='bench 需要给出 MODEL' en='bench needs a MODEL'
says "$en" 2 "$HONE" bench
says "$zh" 2 "$HONE" bench --lang zh
says "$zh" 2 "$HONE" bench --lang=zh
says "$zh" 2 "$HONE" --lang zh bench
says "$zh" 2 "$HONE" --lang=zh bench
says "$en" 2 "$HONE" --lang zh bench --lang en # the later one
says "$zh" 2 env HONE_LANG=zh "$HONE" bench
says "$en" 2 env HONE_LANG=zh "$HONE" bench --lang en
says "$zh" 2 env LANG=zh_CN.UTF-8 "$HONE" bench
says "$en" 2 env LANG=zh_CN.GB18030 "$HONE" bench
says "$en" 2 env LANG=zh_CN.UTF-8 LC_MESSAGES=en_US.UTF-8 "$HONE" bench
says "$zh" 2 env LANG=C LC_MESSAGES=C LC_ALL=zh_CN.UTF-8 "$HONE" bench
says "$en" 2 env LC_ALL=C LANG=zh_CN.UTF-8 "$HONE" bench
says "$en" 2 env LANG=zh_CN.UTF-8 HONE_LANG=en "$HONE" bench
says "lang: 'xx' is neither en nor zh" 2 "$HONE" version --lang xx
says "lang: 'xx' is neither en nor zh" 2 env HONE_LANG=xx "$HONE" version
says "'--lang' needs a value" 2 "$HONE" --lang
says "无法打开 '$dir/none.onnx'：没有那个文件或目录" 3 "$HONE" inspect "$dir/none.onnx" --lang zh
says "没有 'fly' 这个命令" 2 "$HONE" --lang zh fly
# What stands behind -- is the command's.
says '^--lang zh$' 0 "$HONE" exec --source none --quiet -- echo --lang zh

# Each line of help that says something says it in Chinese; what is left are lists of names.
commands=$("$HONE" help | sed -n 's/^  \([a-z]*\)  .*/\1/p' | sort -u)
[ "$(echo "$commands" | wc -l)" -ge 20 ] || fail "help lists few commands"
for command in '' $commands; do
    "$HONE" --lang zh help $command >"$dir/help" || fail "help $command"
    LC_ALL=C.UTF-8 grep -vP '[\x{4e00}-\x{9fff}]' "$dir/help" | grep -E '[a-z]' | grep -vE 'nvml、dcgm|、cuda、' && fail "English in help $command"
    [ "$(LC_ALL=C.UTF-8 grep -c '' "$dir/help")" = "$("$HONE" help $command | wc -l)" ] || fail "help $command has other lines"
done

# JSON is for programs.
for lang in en zh; do
    "$HONE" inspect "$model" --json --lang $lang >"$dir/inspect.$lang" || fail "inspect --json"
    "$HONE" check "$dir" --json --lang $lang >"$dir/check.$lang" 2>/dev/null
done
cmp -s "$dir/inspect.en" "$dir/inspect.zh" || fail "inspect --json depends on the language"
cmp -s "$dir/check.en" "$dir/check.zh" || fail "check --json depends on the language"

# A report: the page is Chinese, the JSON beside it English, names are names.
"$HONE" optimize "$model" -o "$dir/o.onnx" --lang zh --data "$HONE_SOURCE_DIR/examples/fashion/sample.npz" --batch 16 --seconds 0.05 \
    --threads 1 --only graph,int8,fp16 --report "$dir/r" >/dev/null 2>"$dir/err" || fail "optimize: $(cat "$dir/err")"
page=$dir/r/report.html
grep -q '<html lang="zh-CN">' "$page" || fail "the page's language"
for words in 之前与之后 各层精度 如何重做 相对输入模型的速度 '未尝试：它针对的是 size，而目标是 latency' 'stem.conv' '>int8<'; do
    grep -q -- "$words" "$page" || fail "the page lacks $words"
done
sed 's/<style>.*<\/style>//' "$page" | tr '<' '\n' | sed 's/^[^>]*>//' | grep -E '[a-z]{2,} [a-z]{2,} [a-z]{2,}' | grep -v '^hone optimize' && fail "English on the page"
jq -e '.strategies[] | select(.name == "fp16") | .reason == "not tried: it serves size, the objective is latency"' \
    "$dir/r/report.json" >/dev/null || fail "report.json is not English"
LC_ALL=C.UTF-8 grep -qP '[^\x00-\x7f]' "$dir/r/report.json" && fail "report.json is not ASCII"
exit 0
