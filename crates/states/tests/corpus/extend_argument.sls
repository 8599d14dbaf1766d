include:
  - ext.base
extend:
  extended:
    test:
      - result: False
