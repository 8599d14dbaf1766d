base:
  test.configurable_test_state:
    - changes: False
    - result: False
borrower:
  test.configurable_test_state:
    - use:
      - test: base
