include:
  - ext.base
extend:
  extended:
    test:
      - require:
        - test: bad
bad: test.fail_without_changes
