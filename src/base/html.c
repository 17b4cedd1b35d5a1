// SPDX-License-Identifier: Apache-2.0
// Pages that stand alone: see html.h.
#include "base/html.h"
#include <string.h>
#include "base/lang.h"
#include "base/text.h"

// Colours c0 to c7 are told apart by lightness too; both sets hold 3:1 against their ground.
static const char k_style[] =
    ":root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1b2430;--dim:#5d6b7c;--line:#dde2e9;--grid:#e8ecf1;"
    "--c0:#2563c9;--c1:#d1542b;--c2:#15835a;--c3:#8a4fc4;--c4:#a77a06;--c5:#0e8aa0;--c6:#c23d80;--c7:#5a6b7f;"
    "--good:#15835a;--warn:#b67705;--bad:#c5352b;--info:#2563c9;--p0:#dfe9fb;--p1:#e3f3e8;--p2:#fbeedd;--p3:#efe6fa;"
    "--p4:#e0f2f5;--p5:#fbe4ee}"
    "@media(prefers-color-scheme:dark){:root{--bg:#12161c;--card:#1a2029;--ink:#e5eaf1;--dim:#97a5b6;--line:#2c3542;"
    "--grid:#252d38;--c0:#6ea3ff;--c1:#ff8d66;--c2:#4cc796;--c3:#bb8df2;--c4:#e0b13c;--c5:#44c1d8;--c6:#f07fb4;"
    "--c7:#9aa9bb;--good:#4cc796;--warn:#e0b13c;--bad:#ff7a70;--info:#6ea3ff;--p0:#1d2c47;--p1:#1a3329;--p2:#39301f;"
    "--p3:#2e2542;--p4:#16343a;--p5:#3b2230}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"
    "'Segoe UI',Roboto,'Noto Sans','PingFang SC','Microsoft YaHei','Noto Sans CJK SC','WenQuanYi Zen Hei','DejaVu Sans',sans-serif;-webkit-text-size-adjust:100%}"
    "main{max-width:1120px;margin:0 auto;padding:20px 16px 48px}h1{font-size:1.45rem;margin:8px 0 4px;line-height:1.25;"
    "overflow-wrap:anywhere}h2{font-size:1.1rem;margin:30px 0 8px}h3{font-size:.95rem;margin:0;font-weight:600}"
    "p{margin:4px 0}.dim,.note{color:var(--dim);font-size:.88rem}code{font-family:ui-monospace,'DejaVu Sans Mono',monospace;"
    "font-size:.88em;overflow-wrap:anywhere}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(142px,1fr));gap:10px;margin:14px 0}"
    ".tile,.fig{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px}"
    ".tile b{display:block;font-size:1.3rem;font-weight:650;line-height:1.3;font-variant-numeric:tabular-nums;"
    "overflow-wrap:anywhere}.tile span{color:var(--dim);font-size:.8rem;display:block}"
    ".figs{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:12px}"
    ".rem{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--info);border-radius:8px;"
    "padding:9px 14px;margin:8px 0}.rem.good{border-left-color:var(--good)}.rem.warn{border-left-color:var(--warn)}"
    ".rem.bad{border-left-color:var(--bad)}.rem b{display:block}"
    ".scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px}"
    "table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:6px 12px;border-bottom:1px solid var(--grid);white-space:nowrap;vertical-align:top}"
    "th{color:var(--dim);font-weight:600}tr:last-child td{border-bottom:0}.r{text-align:right}td.w{white-space:normal;"
    "min-width:220px}"
    ".fig .head{display:flex;justify-content:space-between;align-items:baseline;gap:8px;flex-wrap:wrap}"
    ".key{display:flex;flex-wrap:wrap;gap:2px 12px;font-size:.78rem;color:var(--dim)}.key i{display:inline-block;width:11px;"
    "height:3px;border-radius:2px;margin-right:5px;vertical-align:middle}"
    ".area{position:relative;height:150px;margin:20px 0 22px 42px}.area svg{position:absolute;inset:0;width:100%;height:100%;"
    "overflow:visible}.y,.x,.at{position:absolute;color:var(--dim);font-size:11px;line-height:1;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}.y{right:calc(100% + 6px);transform:translateY(-50%)}.x{top:calc(100% + 6px);"
    "transform:translateX(-50%)}.x.first{transform:none}.x.last{transform:translateX(-100%)}.at{transform:translateY(-112%);"
    "right:2px;background:var(--card);padding:0 3px;opacity:.85}.ph{position:absolute;bottom:calc(100% + 2px);font-size:10.5px;"
    "color:var(--dim);overflow:hidden;text-overflow:ellipsis;white-space:nowrap;padding:0 3px;line-height:1.2}"
    "svg path,svg line{vector-effect:non-scaling-stroke}.grid{stroke:var(--grid);stroke-width:1}.axis{stroke:var(--line);"
    "stroke-width:1}.ln{fill:none;stroke-width:1.6;stroke-linejoin:round}.band{stroke:none;opacity:.18}"
    ".goal{stroke:var(--good);stroke-width:1;stroke-dasharray:5 4;opacity:.8}"
    ".bars{display:grid;grid-template-columns:minmax(70px,max-content) 1fr max-content;gap:5px 10px;align-items:center;"
    "font-size:.85rem;font-variant-numeric:tabular-nums}.bars .bar{background:var(--grid);border-radius:4px;height:13px;"
    "position:relative}.bars .bar i{position:absolute;inset:0 auto 0 0;border-radius:4px}.bars .bar u{position:absolute;"
    "top:-3px;bottom:-3px;width:2px;background:var(--ink);opacity:.55}.bars .bar s{position:absolute;top:50%;height:1px;"
    "background:var(--ink)}"
    "footer{margin-top:34px;color:var(--dim);font-size:.8rem}"
    "@media(max-width:520px){main{padding:12px 10px 36px}h1{font-size:1.2rem}.tiles{grid-template-columns:1fr 1fr;gap:8px}"
    ".tile b{font-size:1.1rem}.area{height:128px;margin-left:36px}.x.odd{display:none}th,td{padding:5px 8px}td.w{min-width:150px;"
    "overflow-wrap:anywhere}}"
    "@media print{body{background:#fff}.fig,.tile,.rem{break-inside:avoid}}";

void hn_html_escape(hn_str *out, const char *text) {
    size_t left = strlen(text);
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t length = hn_utf8_length((const char *)at, left);
        if (*at == '<') hn_str_append(out, "&lt;");
        else if (*at == '>') hn_str_append(out, "&gt;");
        else if (*at == '&') hn_str_append(out, "&amp;");
        else if (*at == '"') hn_str_append(out, "&quot;");
        else if (*at == '\'') hn_str_append(out, "&#39;");
        else if (*at < 0x20 || *at == 0x7f) hn_str_append(out, " ");
        else if (length) hn_str_append_n(out, (const char *)at, length);
        else hn_str_append(out, "\xef\xbf\xbd");
        at += length ? length : 1;
        left -= length ? length : 1;
    }
}

void hn_html_say(hn_str *out, const char *text) {
    char said[HN_LANG_BYTES];
    hn_html_escape(out, hn_lang_text(text, said));
}

static void verbatim(hn_str *out, const char *open, const char *text, const char *close) {
    hn_str_append(out, open);
    hn_html_escape(out, text);
    hn_str_append(out, close);
}

static void element(hn_str *out, const char *open, const char *text, const char *close) {
    if (!text) return;
    hn_str_append(out, open);
    hn_html_say(out, text);
    hn_str_append(out, close);
}

void hn_html_begin(hn_str *out, const char *title) {
    hn_str_printf(out, "<!doctype html>\n<html lang=\"%s\"><head><meta charset=\"utf-8\">",
                  hn_lang_get() == HN_LANG_ZH ? "zh-CN" : "en");
    hn_str_append(out, "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
    verbatim(out, "<title>", title, "</title>\n<style>");
    hn_str_append(out, k_style);
    verbatim(out, "</style></head>\n<body><main>\n<h1>", title, "</h1>\n");
}

void hn_html_end(hn_str *out) { hn_str_append(out, "</main></body></html>\n"); }

void hn_html_section(hn_str *out, const char *title, const char *note) {
    element(out, "<h2>", title, "</h2>\n");
    element(out, "<p class=\"note\">", note, "</p>\n");
}

void hn_html_tiles_begin(hn_str *out) { hn_str_append(out, "<div class=\"tiles\">\n"); }
void hn_html_tile(hn_str *out, const char *name, const char *value, const char *sub) {
    element(out, "<div class=\"tile\"><span>", name, "</span>");
    element(out, "<b>", value, "</b>");
    element(out, "<span>", sub, "</span>");
    hn_str_append(out, "</div>\n");
}
void hn_html_tiles_end(hn_str *out) { hn_str_append(out, "</div>\n"); }

static bool is_figure(const char *name) { return name[0] == '>'; }
static bool is_name(const char *name) { return name[0] == '='; }

void hn_html_table_begin(hn_str *out, const char *const *names, int columns) {
    hn_str_append(out, "<div class=\"scroll\"><table><thead><tr>");
    for (int i = 0; i < columns; i++)
        element(out, is_figure(names[i]) ? "<th class=\"r\">" : "<th>", names[i] + (is_figure(names[i]) || is_name(names[i])), "</th>");
    hn_str_append(out, "</tr></thead><tbody>\n");
}
void hn_html_row(hn_str *out, const char *const *names, const char *const *cells, int columns) {
    hn_str_append(out, "<tr>");
    for (int i = 0; i < columns; i++) {
        const char *open = is_figure(names[i]) ? "<td class=\"r\">" : strlen(cells[i]) > 48 ? "<td class=\"w\">" : "<td>";
        (is_name(names[i]) ? verbatim : element)(out, open, cells[i], "</td>");
    }
    hn_str_append(out, "</tr>\n");
}
void hn_html_table_end(hn_str *out) { hn_str_append(out, "</tbody></table></div>\n"); }

void hn_html_note(hn_str *out, const char *kind, const char *title, const char *text, const char *small) {
    hn_str_printf(out, "<div class=\"rem %s\">", kind);
    element(out, "<b>", title, "</b>");
    element(out, "<p>", text, "</p>");
    element(out, "<p class=\"note\">", small, "</p>");
    hn_str_append(out, "</div>\n");
}
