{% set bad = salt['grains.filter_by']({'Debian': {'a': 1}}, merge='text') %}
a:
  test.nop: []
