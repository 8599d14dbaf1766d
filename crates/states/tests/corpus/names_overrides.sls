many:
  test.configurable_test_state:
    - changes: False
    - names:
      - one
      - two:
        - changes: True
      - three:
        - result: False
