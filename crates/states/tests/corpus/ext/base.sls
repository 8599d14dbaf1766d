first: test.nop
extended:
  test.configurable_test_state:
    - changes: False
    - require:
      - test: first
named:
  test.configurable_test_state:
    - name: the name of it
