{% set own = 'mine' %}
{% import_yaml 'lib/seen.yml' as without %}
{% import_yaml 'lib/seen.yml' as with_it with context %}
"{{ without.sls }} {{ without.own }} {{ with_it.own }}":
  test.nop: []
