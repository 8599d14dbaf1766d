{% from "map.jinja" import port with context %}{% import_yaml "other.sls" as o %}p{{ port }}: {test.nop: []}
