#!/usr/bin/env python3
"""One setting in a section of an INI file: an extension module in Python.

Reads one question per line and answers with one line. What goes to standard
error is shown to people. Nothing else may be printed.
"""
import json
import os
import sys
import tempfile

TYPES = [{"name": "ini_setting", "properties": ["ensure", "value"]}]


def path_of(question):
    """The file, below the root that is managed."""
    path = question["parameters"]["path"]
    return os.path.join(question["root"], path.lstrip("/")) if question.get("root") else path


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def find(lines, section, setting):
    """The line of the setting, and the line behind the section's last setting."""
    current, behind = None, None
    for index, line in enumerate(lines):
        text = line.strip()
        if text.startswith("[") and text.endswith("]"):
            current = text[1:-1]
        if current != section:
            continue
        if text:
            behind = index + 1
        name, equals, _ = text.partition("=")
        if equals and not text.startswith(("#", ";")) and name.strip() == setting:
            return index, behind
    return None, behind


def observe(question):
    wished = question["parameters"]
    lines = read(path_of(question))
    line, _ = find(lines, wished["section"], wished["setting"])
    if line is None:
        return {"state": {"ensure": "absent"}}
    return {"state": {"ensure": "present", "value": lines[line].partition("=")[2].strip()}}


def apply(question):
    wished, path = question["parameters"], path_of(question)
    lines = read(path)
    line, behind = find(lines, wished["section"], wished["setting"])
    new = f"{wished['setting']} = {wished.get('value', '')}"
    if wished["ensure"] == "absent":
        del lines[line]
    elif line is not None:
        lines[line] = new
    elif behind is not None:
        lines.insert(behind, new)
    else:
        lines += [f"[{wished['section']}]", new]
    write(path, "".join(f"{line}\n" for line in lines))
    return {"message": f"wrote {wished['path']}", "outputs": {"lines": len(lines)}}


def write(path, text):
    """Whole or not at all, with the mode that the file had."""
    mode = os.stat(path).st_mode & 0o7777 if os.path.exists(path) else 0o644
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=os.path.dirname(path), delete=False) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), mode)
    os.replace(file.name, path)


METHODS = {
    "hello": lambda question: {"protocol": 1},
    "describe": lambda question: {"types": TYPES},
    "observe": observe,
    "apply": apply,
}


def main():
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = METHODS[question["method"]](question)
        except Exception as error:  # the resource fails, and the next one may not
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"id": question["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
