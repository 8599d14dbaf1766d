base:
  test.configurable_test_state:
    - result: False
    - use_in:
      - test: borrower
borrower: test.configurable_test_state
