{% set known = {'a': 1}.get('k', nowhere) %}
a:
  test.configurable_test_state:
    - changes: {{ known is defined }}
    - result: True
