{% set bad = salt['slsutil.merge']({'a': 1}, None) %}
a:
  test.nop: []
