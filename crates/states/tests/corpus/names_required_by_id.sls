many:
  test.configurable_test_state:
    - names:
      - one
      - two:
        - result: False
needs all:
  test.nop:
    - require:
      - test: many
