{% set paths = {'a': '/srv/a'} %}
a:
  test.configurable_test_state:
    - name: {{ paths.get('b', nowhere) }}/file
    - result: True
